//! Waits for devices, by the device.

use crate::place::{Place, text};
use result::{Root, RootKind};

#[test]
fn fsync_in_a_loop_is_io_by_the_device_below() {
    let place = Place::new();
    let program = place.program("sync");
    let dir = place.file("mnt");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.display();
    // a file system over memory, in a namespace that ends with the command
    let script = format!(
        "set -e; trap 'umount -q {dir}/mnt; umount -q {dir}' EXIT
        mount -t tmpfs tmpfs {dir}; truncate -s 200M {dir}/image; mkfs.ext4 -q {dir}/image; mkdir {dir}/mnt
        mount -o loop {dir}/image {dir}/mnt; findmnt -n -o SOURCE {dir}/mnt
        {program} {dir}/mnt/file 2000"
    );
    let (output, point) =
        place.point(&["-q", "--", "unshare", "-m", "--propagation", "private", "bash", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = text(&output.stdout);
    let device = output.lines().next().unwrap().trim_start_matches("/dev/");
    assert!(device.starts_with("loop"), "{output}");
    // beside other work the waits may cost no idle time; they are there all the same
    let roots: Vec<&Root> = point
        .roots
        .iter()
        .filter(|r| r.lock.kind == RootKind::Io && r.lock.object.as_deref() == Some(device))
        .collect();
    assert!(roots.iter().any(|r| r.lock.class == "writes"), "{:#?}", point.roots);
    assert!(roots.iter().any(|r| r.lock.class == "flushes"), "{:#?}", point.roots);
    assert!(roots.iter().all(|r| r.wait_s.is_none_or(|s| s > 0.0)));
}
