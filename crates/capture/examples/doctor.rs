//! Prints what this machine allows.

fn main() {
    for finding in capture::doctor() {
        println!("{:?} {}: {} {}", finding.status, finding.name, finding.what, finding.remedy);
    }
}
