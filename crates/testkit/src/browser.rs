//! How do we ask a real browser what it makes of a page?
//!
//! ```text
//! commands (JSON, ended by a zero byte) -> Chromium's debugging pipe -> answers and events
//! open(page, screen), visit(address, screen) -> Opened: exceptions, complaints, addresses asked for, how wide it became
//! ```
//!
//! Always true:
//! 1. The browser reaches no network: every name is unknown to it, and of addresses it knows 127.0.0.1 alone.
//! 2. It ends with the value that started it, and within its time limit whatever happens.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::without;

/// A browser; `None`, said aloud, where Chromium is not installed; a failure where tools are required.
pub fn browser() -> Option<Browser> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let here = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    if let Some(program) = PROGRAMS.iter().find(here) {
        return Some(Browser::start(program));
    }
    without("chromium");
    None
}

const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What a page is looked at with.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// In pixels of CSS.
    pub width: u32,
    /// The same.
    pub height: u32,
    /// A phone, whose pixels are two to one of CSS.
    pub phone: bool,
    /// Its reader prefers dark pages.
    pub dark: bool,
    /// Its reader asked for no motion.
    pub still: bool,
    /// Do scripts run?
    pub scripts: bool,
}

/// A desk.
pub const DESK: Screen = Screen {
    width: 1280,
    height: 900,
    phone: false,
    dark: false,
    still: false,
    scripts: true,
};

/// A phone.
pub const PHONE: Screen = Screen {
    width: 390,
    height: 844,
    phone: true,
    dark: false,
    still: false,
    scripts: true,
};

/// A headless Chromium with one tab.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    tab: Option<String>,
    next_id: u64,
    events: VecDeque<Value>,
    files: TempDir,
}

impl Browser {
    fn start(program: &str) -> Browser {
        let files = tempfile::tempdir().unwrap();
        // The browser reads its commands from descriptor 3 and answers on 4.
        let pipes = "exec timeout -k 5 300 \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", pipes, "sh", program])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-extensions",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", files.path().display()))
            .current_dir(files.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut browser = Browser {
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
            tab: None,
            next_id: 0,
            events: VecDeque::new(),
            files,
        };
        let tab = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.ask(
            "Target.attachToTarget",
            json!({"targetId": tab["targetId"], "flatten": true}),
        );
        browser.tab = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).expect("the pipe");
        assert_eq!(message.pop(), Some(0), "chromium ended before it answered");
        serde_json::from_slice(&message).expect("JSON from the browser")
    }

    /// One command, its answer; events that come meanwhile are kept.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let mut command = json!({"id": self.next_id, "method": method, "params": parameters});
        if let Some(tab) = &self.tab {
            command["sessionId"] = json!(tab);
        }
        self.to.write_all(command.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let mut message = self.receive();
            if message["id"] == json!(self.next_id) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.events.push_back(message);
        }
    }

    fn load(&mut self, address: &str) {
        self.events.clear();
        self.ask("Page.navigate", json!({"url": address}));
        let loaded =
            |events: &VecDeque<Value>| events.iter().any(|e| e["method"] == "Page.loadEventFired");
        while !loaded(&self.events) {
            let event = self.receive();
            self.events.push_back(event);
        }
    }

    /// Opens `html` on `screen` and waits until it is loaded.
    pub fn open(&mut self, html: &str, screen: Screen) -> Opened<'_> {
        let file = self.files.path().join("page.html");
        std::fs::write(&file, html).unwrap();
        self.visit(&format!("file://{}", file.display()), screen)
    }

    /// Opens what is at `address` on `screen` and waits until it is loaded.
    pub fn visit(&mut self, address: &str, screen: Screen) -> Opened<'_> {
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": screen.width, "height": screen.height, "mobile": screen.phone,
                "deviceScaleFactor": if screen.phone { 2 } else { 1 }}),
        );
        self.ask(
            "Emulation.setEmulatedMedia",
            json!({"features": [
                {"name": "prefers-color-scheme", "value": if screen.dark { "dark" } else { "light" }},
                {"name": "prefers-reduced-motion", "value": if screen.still { "reduce" } else { "no-preference" }},
            ]}),
        );
        let disabled = json!({"value": !screen.scripts});
        self.ask("Emulation.setScriptExecutionDisabled", disabled);
        // Else `:focus` is of no page before the browser has made its window the active one, which takes a busy machine long.
        let focused = json!({"enabled": true});
        self.ask("Emulation.setFocusEmulationEnabled", focused);
        // An address that differs behind its `#` alone would load nothing.
        self.load("about:blank");
        self.load(address);
        Opened {
            browser: self,
            address: address.to_owned(),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It answers and ends; should it not, `timeout` ends it.
        let close = json!({"id": 0, "method": "Browser.close"}).to_string();
        let asked = self.to.write_all(close.as_bytes());
        if asked.and_then(|()| self.to.write_all(&[0])).is_err() || std::thread::panicking() {
            // A group of its own would outlive us; the pipe's end is what the rest of it follows.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A page in the browser.
pub struct Opened<'a> {
    browser: &'a mut Browser,
    address: String,
}

impl Opened<'_> {
    /// The value of a JavaScript expression.
    pub fn value(&mut self, expression: &str) -> Value {
        let mut answer = self.browser.ask(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true}),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].take()
    }

    /// The same, a text.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_default().to_owned()
    }

    /// The same, a number.
    pub fn number(&mut self, expression: &str) -> f64 {
        self.value(expression).as_f64().expect(expression)
    }

    /// The value that a promise comes to.
    pub fn awaited(&mut self, expression: &str) -> Value {
        let mut answer = self.browser.ask(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].take()
    }

    /// Waits until a JavaScript expression is true, by the page's own clock, and says whether it came to be.
    pub fn until(&mut self, expression: &str) -> bool {
        let waiting = format!(
            "new Promise(done => {{ let left = 600; const look = () => {{ let is = false; try {{ is = !!({expression}); }} \
             catch {{}} if (is || left-- <= 0) done(is); else setTimeout(look, 50); }}; look(); }})"
        );
        self.awaited(&waiting) == true
    }

    /// A key, as a keyboard sends it, to whatever has the focus.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.browser.ask("Input.dispatchKeyEvent", event);
        }
    }

    /// Types into what has the focus.
    pub fn insert(&mut self, text: &str) {
        self.browser.ask("Input.insertText", json!({"text": text}));
    }

    /// Scrolls to the first element that `selector` finds; the place on the screen at these shares of its box.
    fn place(&mut self, selector: &str, across: f64, down: f64) -> (f64, f64) {
        let found = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); \
             e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }})()"
        ));
        let [left, top, width, height] = [0, 1, 2, 3].map(|n| found[n].as_f64().unwrap());
        (left + width * across, top + height * down)
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64)) {
        self.browser.ask(
            "Input.dispatchMouseEvent",
            json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}),
        );
    }

    /// Moves the mouse over an element, there.
    pub fn hover(&mut self, selector: &str, across: f64, down: f64) {
        let place = self.place(selector, across, down);
        self.browser.ask(
            "Input.dispatchMouseEvent",
            json!({"type": "mouseMoved", "x": place.0, "y": place.1}),
        );
    }

    /// Clicks in the middle of an element.
    pub fn click(&mut self, selector: &str) {
        let place = self.place(selector, 0.5, 0.5);
        self.mouse("mousePressed", place);
        self.mouse("mouseReleased", place);
    }

    /// Focuses an element, and sends it a key.
    pub fn key(&mut self, selector: &str, key: &str) {
        self.value(&format!("document.querySelector({selector:?}).focus()"));
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key});
            self.browser.ask("Input.dispatchKeyEvent", event);
        }
    }

    /// The whole page as a PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        use base64::Engine;
        let picture = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.browser.ask("Page.captureScreenshot", picture);
        base64::prelude::BASE64_STANDARD
            .decode(answer["data"].as_str().unwrap())
            .unwrap()
    }

    /// How far the page reaches to the right, and how far the screen does.
    pub fn widths(&mut self) -> (f64, f64) {
        let scroll = self.number("document.documentElement.scrollWidth");
        // The layout viewport: on a phone a page that is too wide would stretch innerWidth.
        let screen = self.number("document.documentElement.clientWidth");
        (scroll, screen)
    }

    /// What went wrong so far: exceptions of scripts, errors in the console.
    pub fn complaints(&mut self) -> Vec<String> {
        // Whatever is still on its way comes before this answer.
        self.value("1");
        let kept = self.browser.events.iter();
        kept.filter_map(|event| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if parameters["type"] == "error" => {
                    Some(parameters["args"].to_string())
                }
                "Log.entryAdded" if parameters["entry"]["level"] == "error" => {
                    Some(parameters["entry"].to_string())
                }
                _ => None,
            }
        })
        .collect()
    }

    /// Addresses beyond `origin` that the page asked for, what it carries aside.
    pub fn reached_beyond(&mut self, origin: &str) -> Vec<String> {
        let all = self.reached_for();
        all.into_iter()
            .filter(|url| !url.starts_with(origin))
            .collect()
    }

    /// Addresses the page asked for, itself and what it carries aside.
    pub fn reached_for(&mut self) -> Vec<String> {
        self.value("1");
        let own = &self.address;
        let kept = self.browser.events.iter();
        kept.filter(|event| event["method"] == "Network.requestWillBeSent")
            .filter_map(|event| event["params"]["request"]["url"].as_str())
            .filter(|url| url.split('#').next() != Some(own) && !url.starts_with("data:"))
            .map(str::to_owned)
            .collect()
    }
}
