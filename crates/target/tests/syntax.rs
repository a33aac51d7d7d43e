//! The target syntax: what is read, what is refused and with which words, and that nothing panics.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use target::{Error, ErrorKind, SYNTAX_HELP, Spec, parse_list};

fn read(text: &str) -> Spec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    let error = text.parse::<Spec>().expect_err(text);
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn usual_targets_are_written_as_they_are_read() {
    for text in [
        "xfs",
        "ext4",
        "btrfs",
        "tmpfs",
        "f2fs",
        "xfs:agcount=32",
        "xfs:agcount=32+size=8G",
        "ext4:journal=off",
        "overlay:xfs",
        "overlay:ext4:journal=off",
        "overlay:/some/dir",
        "/some/dir",
        "./dir",
        "../dir",
        ".",
        "/mnt/a:b+c=d",
        "xfs:mkfs=-m reflink=0 -i size=1024",
        "xfs:mount=noatime+mount=logbsize=256k",
        "xfs:device=/dev/sdz",
    ] {
        assert_eq!(read(text).to_string(), text);
    }
    assert_eq!(read("some/dir").to_string(), "./some/dir");
}

#[test]
fn quotes_keep_commas_blanks_and_plus_signs() {
    let spec = read(r#"xfs:mount="noatime,logbsize=256k"+mkfs="a+b c"+agcount=8"#);
    assert_eq!(spec.to_string(), r#"xfs:mount="noatime,logbsize=256k"+mkfs="a+b c"+agcount=8"#);
    let spec = read(r#""/mnt/a, \"b\" \\ $(c)""#);
    assert_eq!(spec.existing_directory(), Some(Path::new(r#"/mnt/a, "b" \ $(c)"#)));
    assert_eq!(read(r"/mnt/a\,b").existing_directory(), Some(Path::new("/mnt/a,b")));
}

#[test]
fn a_list_is_split_at_commas_outside_of_quotes() {
    let list = parse_list(r#"xfs,xfs:agcount=32, "/mnt/a,b",xfs:mount="noatime,nodiratime",overlay:tmpfs"#);
    let list: Vec<String> = list.expect("a list").iter().map(Spec::to_string).collect();
    assert_eq!(
        list,
        ["xfs", "xfs:agcount=32", r#""/mnt/a,b""#, r#"xfs:mount="noatime,nodiratime""#, "overlay:tmpfs"]
    );
    for text in ["", ",", "xfs,", "xfs,,ext4", " "] {
        let line = parse_list(text).expect_err(text).to_string();
        assert!(line.contains("a target is empty"), "{line}");
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest_and_all_others() {
    let line = refused("xsf");
    assert!(
        line.starts_with("no target is called xsf (did you mean xfs?); known: xfs, ext4, btrfs, tmpfs,"),
        "{line}"
    );
    assert!(refused("ext5:journal=off").contains("did you mean ext4?"));
    assert!(!refused("zfspool").contains("did you mean"));
    let line = refused("xfs:agcont=3");
    assert!(line.starts_with("xfs has no option agcont (did you mean agcount?); it has: agcount,"), "{line}");
    assert!(refused("tmpfs:mkfs=-f").contains("tmpfs has no option mkfs"));
}

#[test]
fn wrong_values_are_answered_with_what_is_wanted() {
    assert_eq!(refused("xfs:agcount=0"), "xfs:agcount=0: give a number from 1 to 1000000");
    assert_eq!(refused("xfs:agcount=many"), "xfs:agcount=many: give a number from 1 to 1000000");
    assert_eq!(refused("ext4:journal=no"), "ext4:journal=no: give on or off");
    assert_eq!(refused("ext4:data=lost"), "ext4:data=lost: give ordered or writeback or journal");
    assert_eq!(refused("xfs:size=big"), "xfs:size=big: give a size such as 64k, 512M or 4G");
    assert!(refused("xfs:size=1\nG").starts_with(r#"xfs:size="1\nG": give"#));
}

#[test]
fn wrong_syntax_is_answered_with_the_right_one() {
    assert!(refused("xfs:").contains("an option is empty"));
    assert!(refused("xfs:agcount").contains("as in agcount=VALUE"));
    assert!(refused("xfs:agcount=3+").contains("an option is empty"));
    assert!(refused("xfs:agcount=3+agcount=4").contains("given twice"));
    assert!(refused("xfs,ext4").contains("a comma separates targets"));
    assert!(refused("xfs:mount=\"noatime").contains("not closed"));
    assert!(refused("/a\\").contains("backslash"));
    assert!(refused("/a\0b").contains("NUL"));
    assert!(refused("overlay").contains("overlay:xfs"));
    assert!(refused("xfs:size=4G+device=/dev/sdz").contains("the size of the device counts"));
    assert!(refused("overlay:overlay:xfs").contains("cannot lie on an overlay"));
    assert!(refused("").contains("empty"));
}

#[test]
fn every_example_of_the_help_is_a_target() {
    let mut examples = 0;
    for line in SYNTAX_HELP.lines().filter(|line| line.starts_with("  --on ")) {
        for argument in line.trim().split("--on ").filter(|argument| !argument.is_empty()) {
            // As the shell would: single quotes go.
            parse_list(&argument.trim().replace('\'', ""))
                .unwrap_or_else(|error| panic!("{argument}: {error}"));
            examples += 1;
        }
    }
    assert!(examples >= 7);
    assert!(SYNTAX_HELP.lines().all(|line| line.len() <= 110));
}

#[test]
fn remedies_are_targets_of_their_own_with_a_reason() {
    let texts = |target: &str, tasks| -> Vec<String> {
        read(target).remedies(tasks, 4 << 30).iter().map(|remedy| remedy.spec.to_string()).collect()
    };
    assert_eq!(texts("xfs", 24), ["xfs:agcount=48", "ext4", "btrfs"]);
    assert_eq!(
        texts("xfs:agsize=64M+size=2G", 24),
        ["xfs:size=2G+agcount=48", "ext4:size=2G", "btrfs:size=2G"]
    );
    assert_eq!(texts("xfs", 2), ["xfs:agcount=8", "ext4", "btrfs"], "4 groups are the default");
    assert_eq!(texts("xfs", 2048)[0], "xfs:agcount=256", "a group needs 16 MiB");
    assert_eq!(texts("xfs:agcount=48", 24), ["ext4", "btrfs"]);
    assert_eq!(texts("ext4", 4), ["ext4:journal=off", "xfs", "btrfs"]);
    assert_eq!(texts("overlay:ext4:journal=off", 4), ["ext4:journal=off", "overlay:xfs", "overlay:btrfs"]);
    assert_eq!(texts("tmpfs", 4), [""; 0]);
    assert_eq!(texts("/some/dir", 4), [""; 0]);
    assert!(read("xfs").remedies(24, 4 << 30).iter().all(|remedy| !remedy.why.is_empty()));
}

#[test]
fn a_directory_of_any_name_can_be_a_target() {
    assert!(matches!(Spec::directory(Path::new("")), Err(Error::Directory { .. })));
    let spec = Spec::directory(Path::new("xfs")).expect("a directory that is called xfs");
    assert_eq!(spec.to_string(), "./xfs");
    assert!(spec.is_directory());
}

/// Options with values that are accepted, as (file system, option, value).
fn made() -> impl Strategy<Value = String> {
    let raw = "[ -~]{0,12}[!-~]";
    let option = prop_oneof![
        (1..99_u32).prop_map(|n| ("agcount".to_owned(), n.to_string())),
        (1..99_u32).prop_map(|n| ("size".to_owned(), format!("{n}G"))),
        raw.prop_map(|text| ("mkfs".to_owned(), text)),
        raw.prop_map(|text| ("mount".to_owned(), text)),
        raw.prop_map(|text| ("device".to_owned(), text)),
    ];
    proptest::collection::btree_map(Just(()).prop_flat_map(move |()| option.clone()), Just(()), 0..4)
        .prop_map(|options| {
            let mut seen = std::collections::BTreeSet::new();
            let quoted = |value: &str| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
            let options: Vec<String> = options
                .into_keys()
                .filter(|(key, _)| seen.insert(key.clone()))
                .map(|(key, value)| format!("{key}={}", quoted(&value)))
                .collect();
            if options.is_empty() { "xfs".to_owned() } else { format!("xfs:{}", options.join("+")) }
        })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in any::<String>()) {
        if let Err(error) = text.parse::<Spec>() {
            prop_assert!(!error.to_string().contains('\n'));
        }
        parse_list(&text).ok();
    }

    #[test]
    fn texts_of_the_syntaxs_own_characters_are_read_back_as_written(text in r#"(overlay|xfs|ext4|:|\+|=|size|1G|mount|/|\.|,|"|\\| |a){0,12}"#) {
        if let Ok(spec) = text.parse::<Spec>() {
            prop_assert_eq!(spec.to_string().parse::<Spec>().expect("what was written"), spec);
        }
    }

    #[test]
    fn a_made_target_is_read_back_as_written(text in made(), overlay in any::<bool>()) {
        let text = if overlay { format!("overlay:{text}") } else { text };
        let spec = text.parse::<Spec>();
        prop_assume!(spec.is_ok());
        let spec = spec.expect("it is one");
        prop_assert_eq!(&spec.to_string().parse::<Spec>().expect("what was written"), &spec);
        let json = serde_json::to_string(&spec).expect("JSON");
        prop_assert_eq!(&serde_json::from_str::<Spec>(&json).expect("JSON"), &spec);
        prop_assert_eq!(parse_list(&format!("tmpfs,{spec},xfs")).expect("a list")[1].clone(), spec);
    }

    #[test]
    fn a_directory_is_read_back_as_written(name in "[^\0]{1,20}") {
        let path = PathBuf::from(&name);
        let spec = Spec::directory(&path).expect("a directory");
        let back = spec.to_string().parse::<Spec>().expect("what was written");
        prop_assert_eq!(&back, &spec);
        prop_assert!(back.is_directory());
    }
}
