//! Every command line that the product promises, with short windows.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::home::{Home, QUICK, case, perfloss, point, warns};

/// All points valid.
fn works(home: &Home, arguments: &[&str]) -> serde_json::Value {
    let result = home.measure(arguments).json(0);
    for point in result["points"].as_array().unwrap() {
        assert_eq!(point["valid"], true, "{arguments:?}: {point}");
        assert!(point["ops_per_s"]["median"].as_f64().unwrap() > 0.0, "{arguments:?}: {point}");
    }
    result
}

#[test]
fn compilers_run_on_every_usual_file_system() {
    let home = Home::new();
    let result = works(&home, &["cc", "-t", "1,2,24", "--on", "ext4,btrfs,xfs,tmpfs", "-s", "0.3"]);
    assert_eq!(result["points"].as_array().unwrap().len(), 12);
    let targets = result["targets"].as_array().unwrap();
    for target in targets {
        let kind = target["kind"].as_str().unwrap();
        assert_eq!(target["facts"]["file system"], kind, "{target}");
        assert_eq!(target["facts"].get("mkfs").is_some(), kind != "tmpfs", "{target}");
    }
}

#[test]
fn shared_and_own_directories_run_on_file_systems_and_in_a_directory() {
    let home = Home::new();
    let place = home.place().display().to_string();
    let on = format!("ext4,btrfs,xfs,tmpfs,{place}");
    let result = works(&home, &["create_unlink,create_unlink:own-dir", "-t", "1,2,4", "--on", &on]);
    assert_eq!(result["points"].as_array().unwrap().len(), 30);
    assert_eq!(point(&result, &place, 4)["valid"], true);
}

#[test]
fn the_reported_test_case_runs_unmodified() {
    let home = Home::new();
    let result = works(&home, &[&case("cc.c"), "-t", "24", "--on", "xfs", "-s", "0.5"]);
    assert_eq!(result["points"][0]["workload"], "cc");
    assert!(warns(&result["warnings"], "exit_status_not_checked"), "{}", result["warnings"]);
    // The same by a relative name.
    fs::copy(case("cc.c"), home.work().join("cc.c")).unwrap();
    works(&home, &["./cc.c", "-t", "2", "--on", "xfs", "-s", "0.3"]);
}

#[test]
fn a_command_template_runs_on_a_file_system_and_on_an_overlay_over_it() {
    let home = Home::new();
    let each = "cc -c -o {dir}/out.{task}.o {src}/src{task}.c";
    let result = works(&home, &["--each", each, "-t", "24", "--on", "xfs,overlay:xfs", "-s", "0.5"]);
    assert_eq!(result["points"][1]["target"], "overlay:xfs");
}

#[test]
fn overlays_run_over_each_file_system_and_over_a_directory() {
    let home = Home::new();
    let on = format!("overlay:ext4,overlay:btrfs,overlay:tmpfs,overlay:{}", home.place().display());
    let result = works(&home, &["create_unlink", "-t", "2", "--on", &on]);
    for target in result["targets"].as_array().unwrap() {
        assert_eq!(target["facts"]["file system"], "overlay", "{target}");
        assert!(target["facts"]["below"].is_string(), "{target}");
    }
}

#[test]
fn options_of_targets_reach_mkfs_and_mount() {
    let home = Home::new();
    let on = "xfs:agcount=8,ext4:journal=off,btrfs:checksum=xxhash,xfs:mount=\"noatime,logbsize=64k\"";
    let result = works(&home, &["create_unlink", "-t", "1", "--on", on]);
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets[0]["facts"]["agcount"], "8");
    let options = targets[3]["facts"]["mount options"].as_str().unwrap();
    assert!(options.contains("noatime") && options.contains("logbsize=64k"), "{options}");
}

#[test]
fn images_on_a_disk_leave_nothing_there() {
    let home = Home::new();
    let medium = home.place().display().to_string();
    let result = works(&home, &["create_unlink", "-t", "1", "--on", "xfs,ext4", "--medium", &medium]);
    for target in result["targets"].as_array().unwrap() {
        assert!(target["facts"]["medium"].as_str().unwrap().contains(&medium), "{target}");
    }
}

#[test]
fn every_built_in_workload_runs_in_each_of_its_modes() {
    let home = Home::new();
    let names: Vec<String> = workload::registry().iter().map(|w| w.name().to_owned()).collect();
    assert!(names.len() >= 12);
    for mode in ["processes", "threads"] {
        let has = |w: &dyn workload::Workload| {
            w.modes().has(if mode == "threads" { workload::Mode::Threads } else { workload::Mode::Processes })
        };
        let those: Vec<String> =
            workload::registry().iter().filter(|w| has(w.as_ref())).map(|w| w.name().to_owned()).collect();
        // ext4 gives the blocks of a truncated file back with its next journal commit: where the machine is fast enough,
        // fallocate finds it full and the point is rightly void.
        let on_ext4: Vec<String> = those.iter().filter(|name| *name != "fallocate").cloned().collect();
        for (target, names) in [("tmpfs", &those), ("ext4", &on_ext4)] {
            let arguments =
                [&names.join(","), "-t", "2", "--mode", mode, "--warm-up", "0.05", "--on", target];
            let result = works(&home, &arguments);
            assert_eq!(result["points"].as_array().unwrap().len(), names.len());
        }
    }
}

#[test]
fn what_list_names_is_what_runs() {
    let home = Home::new();
    let ran = home.perfloss(&["list"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    for workload in workload::registry() {
        assert!(ran.stdout.lines().any(|l| l.trim().starts_with(workload.name())), "{}", workload.name());
    }
    for target in ["xfs", "ext4", "btrfs", "tmpfs", "overlay"] {
        assert!(ran.stdout.contains(target), "{target}");
    }
}

#[test]
fn doctor_says_what_this_machine_allows() {
    let home = Home::new();
    let ran = home.perfloss(&["doctor"]);
    assert!(ran.status == 0 || ran.status == 4, "{ran:?}");
    for word in ["kernel", "CPUs", "target xfs", "CAP_SYS_ADMIN"] {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    // Built-in workloads run without a compiler: whatever is wrong with it, nothing else becomes so.
    let with_cc = |path: &Path| {
        let mut command = home.command(perfloss(), &["doctor", "--json"]);
        let usual = std::env::var_os("PATH").unwrap();
        let elsewhere = std::env::split_paths(&usual).filter(|dir| !dir.join("cc").exists());
        command.env("PATH", std::env::join_paths([path.to_owned()].into_iter().chain(elsewhere)).unwrap());
        let findings: serde_json::Value = serde_json::from_str(&home.start(command).end().stdout).unwrap();
        let found = findings.as_array().unwrap().iter().find(|f| f["what"] == "C compiler").unwrap().clone();
        (found["ok"] == true, found["optional"] == true, found["says"].as_str().unwrap().to_owned())
    };
    let bin = home.work().join("bin");
    fs::create_dir(&bin).unwrap();
    let (ok, optional, says) = with_cc(&bin);
    assert!(!ok && optional && says.starts_with("cc is missing"), "{says}");
    assert!(says.contains("the workload cc and C test cases need it"), "{says}");
    let cc = |script: &str| {
        fs::write(bin.join("cc"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join("cc"), fs::Permissions::from_mode(0o755)).unwrap();
        with_cc(&bin)
    };
    let (ok, optional, says) = cc("echo cc 12.0; exit 1");
    assert!(!ok && optional && says.starts_with("cc --version fails (exit status: 1)"), "{says}");
    assert_eq!(cc("echo cc 12.0; echo more"), (true, false, "cc 12.0".to_owned()));
}

#[test]
fn a_saved_result_is_shown_again_as_it_was_printed() {
    let home = Home::new();
    let arguments = ["run", "create_unlink", "-t", "1,2", "--on", "tmpfs,xfs", "-s", "0.1", "--rounds", "2"];
    let mut all = arguments.to_vec();
    all.extend(["--no-capture", "--quiet", "-o", "result"]);
    let ran = home.perfloss(&all);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let shown = home.perfloss(&["show", "result"]);
    let table = |text: &str| {
        text.lines().take_while(|l| !l.contains("report.html")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(table(&shown.stdout), table(&ran.stdout));
    let json = home.perfloss(&["show", "result", "--json"]).json(0);
    let saved: serde_json::Value =
        serde_json::from_slice(&fs::read(home.work().join("result/result.json")).unwrap()).unwrap();
    assert_eq!(json, saved);
    assert_eq!(json["complete"], true);
}

#[test]
fn results_get_folders_of_their_own_below_the_working_directory() {
    let home = Home::new();
    for _ in 0..3 {
        let ran = home.perfloss(&QUICK);
        assert_eq!(ran.status, 0, "{ran:?}");
    }
    assert_eq!(fs::read_dir(home.work().join("perfloss-results")).unwrap().count(), 3);
}
