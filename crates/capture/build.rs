//! Compiles the BPF programs with clang. Nothing of the machine's kernel is needed: members of kernel structures are found at load time.

use std::env;
use std::path::PathBuf;

fn main() {
    let source = "src/bpf/capture.bpf.c";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let arch = match arch.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        other => other,
    };
    libbpf_cargo::SkeletonBuilder::new()
        .source(source)
        .obj(out.join("capture.bpf.o"))
        .clang_args([
            format!("-D__TARGET_ARCH_{arch}"),
            "-mcpu=v3".into(),
            "-Wall".into(),
            "-Wno-unused-function".into(),
        ])
        .build()
        .expect("clang compiles the BPF programs (Debian: apt-get install clang libelf-dev zlib1g-dev)");
    println!("cargo:rerun-if-changed=src/bpf");
}
