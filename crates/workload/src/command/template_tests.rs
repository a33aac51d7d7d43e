use super::*;
use proptest::prelude::*;

fn filled(template: &str) -> Vec<String> {
    let value = |hole: Hole| {
        OsStr::new(match hole {
            Hole::Task => "3",
            Hole::Tasks => "8",
            Hole::Dir => "/a b",
            Hole::Own => "/a b/own.3",
            Hole::Src => "/s'\"$(x)\n",
        })
    };
    let words = words(template, false).expect("a good template");
    words.iter().map(|w| w.fill(value).into_string().expect("UTF-8")).collect()
}

#[test]
fn placeholders_are_replaced_inside_arguments_and_never_split() {
    assert_eq!(
        filled("cc -c -o {dir}/out.{task}.o '{src}'/src{task}.c"),
        ["cc", "-c", "-o", "/a b/out.3.o", "/s'\"$(x)\n/src3.c"]
    );
}

#[test]
fn doubled_braces_and_braces_that_are_no_placeholders_stay_braces() {
    assert_eq!(
        filled("awk '{{print}} {print $1}' {} {a,b} \\{task}"),
        ["awk", "{print} {print $1}", "{}", "{a,b}", "{task}"]
    );
}

#[test]
fn an_unknown_placeholder_is_named_with_the_known_ones() {
    let error = words("x {tsk}", false).expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "unknown placeholder {tsk}: there are {task}, {tasks}, {dir}, {own}, {src}; write {{tsk}} for braces"
    );
    let error = words("x {task}", true).expect_err("no task in a set-up");
    assert_eq!(
        error.to_string(),
        "unknown placeholder {task}: there are {tasks}, {dir}, {src}; write {{task}} for braces"
    );
}

#[test]
fn a_bare_shell_operator_is_refused_and_a_quoted_one_is_passed_on() {
    for operator in ["|", ">", ">>", "&&", "&", ";", "<", "`", "$(", "${", "$HOME", "||", "(", ")"] {
        let error = words(&format!("echo a {operator} b"), false).expect_err(operator);
        assert_eq!(error, TemplateError::NeedsShell { operator: operator.to_owned() });
        assert!(error.to_string().contains("--shell"));
        assert_eq!(filled(&format!("echo '{operator}'")), ["echo", operator]);
    }
    assert!(words("a\nb", false).is_err());
    assert_eq!(filled("\n a \\\n b \n"), ["a", "b"]);
    assert_eq!(filled("awk $1 $"), ["awk", "$1", "$"]);
}

#[test]
fn unclosed_quotes_and_empty_commands_are_refused() {
    assert_eq!(words("a 'b", false), Err(TemplateError::Unclosed("single quote")));
    assert_eq!(words("a \"b", false), Err(TemplateError::Unclosed("double quote")));
    assert_eq!(words(" \t", false), Err(TemplateError::Empty));
    assert_eq!(script(" \n", false), Err(TemplateError::Empty));
}

proptest! {
    #[test]
    fn words_without_placeholders_are_split_as_shell_words_does(template in "[ab'\"\\\\ \u{e4}]{0,24}") {
        let ours = words(&template, false);
        match shell_words::split(&template) {
            Ok(theirs) if !theirs.is_empty() => {
                let ours: Vec<_> = ours.expect("they accept it").iter().map(|w| w.literal().map(str::to_owned)).collect();
                prop_assert_eq!(ours, theirs.into_iter().map(Some).collect::<Vec<_>>());
            }
            _ => prop_assert!(ours.is_err()),
        }
    }

    #[test]
    fn any_text_is_taken_or_refused_without_a_panic(template in "\\PC{0,40}|[{}a-z'\"$()`\\\\ #\n]{0,40}") {
        let _ = words(&template, false);
        let _ = script(&template, true);
    }
}

/// Runs a script in a real shell with dangerous values. Returns what it printed.
fn shell(template: &str) -> String {
    let script = script(template, false).expect("a good template");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("PERFLOSS_DIR", "/a b'\"$(echo bad)`echo bad`;\n*")
        .env("PERFLOSS_TASK", "3")
        .output()
        .expect("sh runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_shell_takes_values_literally_whatever_the_quotes_around_them() {
    let dir = "/a b'\"$(echo bad)`echo bad`;\n*";
    for template in [
        "printf %s {dir}",
        "printf %s \"{dir}\"",
        "printf %s '{dir}'",
        "printf %s \"$(printf %s {dir})\"",
        "printf %s \"`printf %s {dir}`\"",
        "printf %s \"$( (printf %s \"{dir}\") )\" # it's a comment {dir}",
        "X={dir}; printf %s \"${X}\" | cat",
    ] {
        assert_eq!(shell(template), dir, "{template}");
    }
    assert_eq!(shell("printf %s x{dir}y{task}"), format!("x{dir}y3"));
    assert_eq!(shell("echo $(( {task} + (1) )) \\{task} '{{'"), "4 {task} {\n");
}
