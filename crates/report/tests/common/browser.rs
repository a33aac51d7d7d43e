//! A headless Chromium, spoken to through its debugging pipe.

#![allow(clippy::unwrap_used, dead_code)]

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    next: u64,
    session: String,
    /// Console messages, exceptions and log entries of the page.
    pub complaints: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser with an empty page.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (dir.path().join("in"), dir.path().join("out"));
        let made = Command::new("mkfifo").arg(&input).arg(&output).status().unwrap();
        assert!(made.success());
        let child = Command::new("timeout")
            .args(["120", "sh", "-c", r#"exec "$0" "$@" 3<"$FIFO_IN" 4>"$FIFO_OUT""#, "chromium"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            .arg("about:blank")
            .env("FIFO_IN", &input)
            .env("FIFO_OUT", &output)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let found =
            Command::new("sh").args(["-c", "command -v chromium"]).stdout(Stdio::null()).status().unwrap();
        assert!(found.success(), "the page is tested in Chromium: apt-get install chromium");
        let to = OpenOptions::new().write(true).open(&input).unwrap();
        let mut out = File::open(&output).unwrap();
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            let mut chunk = [0; 65536];
            while let Ok(n) = out.read(&mut chunk) {
                if n == 0 {
                    break;
                }
                rest.extend_from_slice(&chunk[..n]);
                while let Some(end) = rest.iter().position(|b| *b == 0) {
                    let message: Vec<u8> = rest.drain(..=end).collect();
                    if let Ok(value) = serde_json::from_slice(&message[..end])
                        && sender.send(value).is_err()
                    {
                        return;
                    }
                }
            }
        });
        let mut browser =
            Self { child, to, from, next: 0, session: String::new(), complaints: Vec::new(), _dir: dir };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let session =
            browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.receive(until, method);
            if answer["id"] == self.next {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self, until: Instant, what: &str) -> Value {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(message) = self.from.recv_timeout(left) else { panic!("no answer to {what}") };
        let p = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(p["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") => self.complaints.push(p["args"].to_string()),
            Some("Log.entryAdded") => self.complaints.push(p["entry"].to_string()),
            Some("Network.requestWillBeSent") => {
                let url = p["request"]["url"].as_str().unwrap_or("");
                if !url.starts_with("file:") {
                    self.complaints.push(format!("asked the network for {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a file and waits until it has loaded.
    pub fn open(&mut self, file: &Path) {
        self.call("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        let until = Instant::now() + PATIENCE;
        while self.receive(until, "the page")["method"] != "Page.loadEventFired" {}
    }

    /// The value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The size of the window, and whether it is a phone's.
    pub fn window(&mut self, width: u32, height: u32, phone: bool) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}),
        );
    }

    /// Light or dark, screen or print.
    pub fn media(&mut self, media: &str, scheme: &str) {
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
    }

    /// A picture of the whole page, for a person to look at.
    pub fn picture(&mut self, file: &Path) {
        use base64::Engine;
        let shot = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// The page on paper.
    pub fn pdf(&mut self, file: &Path) {
        use base64::Engine;
        let pdf = self.call("Page.printToPDF", json!({"printBackground": true}));
        let bytes = base64::engine::general_purpose::STANDARD.decode(pdf["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        self.next += 1;
        let close = format!("{}\0", json!({"id": self.next, "method": "Browser.close"}));
        if self.to.write_all(close.as_bytes()).is_err() {
            // Already gone; the kill below is for what is left.
        }
        for _ in 0..100 {
            if self.child.try_wait().is_ok_and(|s| s.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
