//! Waits for devices, by the device.

use crate::place::{Place, text};
use result::{Point, Root, RootKind};

/// Records a program on a file system of its own over a loop device, which ends with the command; gives the point and the device. `{}` in
/// the command is where that file system is mounted.
fn on_a_loop_device(place: &Place, command: &str) -> (Point, String) {
    let dir = place.file("mnt");
    std::fs::create_dir_all(&dir).unwrap();
    let dir = dir.display();
    let command = command.replace("{}", &format!("{dir}/mnt"));
    let script = format!(
        "set -e; trap 'umount -q {dir}/mnt; umount -q {dir}' EXIT
        mount -t tmpfs tmpfs {dir}; truncate -s 200M {dir}/image; mkfs.ext4 -q {dir}/image; mkdir {dir}/mnt
        mount -o loop {dir}/image {dir}/mnt; findmnt -n -o SOURCE {dir}/mnt
        {command}"
    );
    let (output, point) =
        place.point(&["-q", "--", "unshare", "-m", "--propagation", "private", "bash", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = text(&output.stdout);
    let device = output.lines().next().unwrap().trim_start_matches("/dev/").to_owned();
    assert!(device.starts_with("loop"), "{output}");
    (point, device)
}

fn roots_of<'a>(point: &'a Point, device: Option<&str>) -> Vec<&'a Root> {
    point.roots.iter().filter(|r| r.lock.kind == RootKind::Io && r.lock.object.as_deref() == device).collect()
}

#[test]
fn fsync_in_a_loop_is_io_by_the_device_below() {
    let place = Place::new();
    let program = place.program("sync");
    let (point, device) = on_a_loop_device(&place, &format!("{program} {{}}/file 2000"));
    // beside other work the waits may cost no idle time; they are there all the same
    let roots = roots_of(&point, Some(&device));
    assert!(roots.iter().any(|r| r.lock.class == "writes"), "{:#?}", point.roots);
    assert!(roots.iter().any(|r| r.lock.class == "flushes"), "{:#?}", point.roots);
    assert!(roots.iter().all(|r| r.wait_s.is_none_or(|s| s > 0.0)));
}

#[test]
fn asynchronous_reads_are_io_by_device() {
    let place = Place::new();
    let program = place.program("async");
    for how in ["aio", "uring"] {
        let (point, device) = on_a_loop_device(&place, &format!("{program} {{}}/file {how} 2000"));
        let roots = roots_of(&point, Some(&device));
        let reads = roots.iter().find(|r| r.lock.class == "reads");
        let reads = reads.unwrap_or_else(|| panic!("{how}: {:#?}", point.roots));
        // a request that is done before the task sleeps is not waited for
        assert!(reads.waits.is_some_and(|n| n > 1000), "{how}: {reads:#?}");
        let unknown: f64 = roots_of(&point, None).iter().filter_map(|r| r.wait_s).sum();
        assert!(unknown < 0.5 * reads.wait_s.unwrap(), "{how}: {unknown} s: {:#?}", point.roots);
    }
}
