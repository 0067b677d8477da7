//! `monarch serve` as a process, asked by hand-written HTTP: a client library would tidy up the
//! paths that must be refused.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const FILE: &[u8] = b"0123456789abcdef";

/// `served/` with files in it, and `secret` beside it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let served = folder.path().join("served");
    std::fs::create_dir(&served).unwrap();
    std::fs::create_dir(served.join("models")).unwrap();
    for name in [
        "weights.bin",
        "page.wasm",
        "manifest.json",
        "index.js",
        "models/weights.bin",
    ] {
        std::fs::write(served.join(name), FILE).unwrap();
    }
    std::fs::write(served.join("index.html"), "<title>Page</title>").unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    folder
}

fn command(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monarch"));
    command
        .arg("serve")
        .arg(folder)
        .args(["--port", &port.to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running server; dropping it kills it.
struct Server {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = folder();
        let mut process = command(&folder.path().join("served"), 0).spawn().unwrap();
        let mut line = String::new();
        let stdout = process.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let port = line
            .strip_prefix("http://127.0.0.1:")
            .unwrap()
            .strip_suffix("/\n")
            .unwrap();
        let port = port.parse().unwrap();
        Server {
            process,
            port,
            _folder: folder,
        }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        )
        .unwrap();
        for (name, value) in headers {
            write!(stream, "{name}: {value}\r\n").unwrap();
        }
        stream.write_all(b"\r\n").unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap();
        let mut lines = std::str::from_utf8(&bytes[..end]).unwrap().split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        };
        Answer {
            status,
            headers: lines.map(header).collect(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    fn get_range(&self, range: &str) -> Answer {
        self.ask("GET", "/weights.bin", &[("Range", range)])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    /// Names in lower case.
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

#[test]
fn ranges() {
    let server = Server::start();
    for (asked, content_range, body) in [
        ("bytes=0-0", "bytes 0-0/16", &FILE[..1]),
        ("bytes=3-9", "bytes 3-9/16", &FILE[3..10]),
        ("bytes=10-", "bytes 10-15/16", &FILE[10..]),
        ("bytes=-5", "bytes 11-15/16", &FILE[11..]),
        ("bytes=0-15", "bytes 0-15/16", FILE),
    ] {
        let answer = server.get_range(asked);
        assert_eq!(answer.status, 206, "{asked}");
        assert_eq!(answer.header("content-range"), content_range);
        assert_eq!(answer.header("content-length"), body.len().to_string());
        assert_eq!(answer.body, body, "{asked}");
    }
    for asked in ["bytes=16-20", "bytes=100-"] {
        let answer = server.get_range(asked);
        assert_eq!(answer.status, 416, "{asked}");
        assert_eq!(answer.header("content-range"), "bytes */16");
    }
}

#[test]
fn whole_file_and_head() {
    let server = Server::start();
    let answer = server.get("/weights.bin?v=2");
    assert_eq!((answer.status, &answer.body[..]), (200, FILE));
    assert_eq!(answer.header("accept-ranges"), "bytes");
    assert_eq!(answer.header("content-encoding"), "");
    let answer = server.ask("HEAD", "/weights.bin", &[]);
    assert_eq!((answer.status, &answer.body[..]), (200, &b""[..]));
    assert_eq!(answer.header("content-length"), "16");
}

#[test]
fn types_and_isolation() {
    let server = Server::start();
    for (path, content_type) in [
        ("/", "text/html"),
        ("/weights.bin", "application/octet-stream"),
        ("/models/weights.bin", "application/octet-stream"),
        ("/page.wasm", "application/wasm"),
        ("/manifest.json", "application/json"),
        ("/index.js", "text/javascript"),
        ("/absent.json", ""),
    ] {
        let answer = server.get(path);
        assert_eq!(
            answer.status,
            if content_type.is_empty() { 404 } else { 200 },
            "{path}"
        );
        assert_eq!(answer.header("content-type"), content_type, "{path}");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(
            answer.header("cross-origin-embedder-policy"),
            "require-corp"
        );
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
}

#[test]
fn no_path_leads_out() {
    let server = Server::start();
    for path in [
        "/../secret",
        "/models/../../secret",
        "/%2e%2e/secret",
        "/%2E%2e/secret",
        "/..%2fsecret",
        "/models/..%2f..%2fsecret",
        "/..%5csecret",
        "/..\\secret",
        "/.%00./secret",
        "//../secret",
    ] {
        let answer = server.get(path);
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        assert!(
            !answer.body.windows(6).any(|window| window == b"secret"),
            "{path}"
        );
    }
    let absolute = format!("/{}", server._folder.path().join("secret").display());
    assert_eq!(server.get(&absolute).status, 404);
}

#[test]
fn only_reading() {
    let server = Server::start();
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(
            server.ask(method, "/weights.bin", &[]).status,
            405,
            "{method}"
        );
    }
}

fn failure(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn port_that_is_taken() {
    let server = Server::start();
    let folder = folder();
    let output = command(folder.path(), server.port).output().unwrap();
    let expected = format!(
        "error: port {} is in use, choose another one with --port (0 takes a free one)\n",
        server.port
    );
    assert_eq!(failure(output), expected);
}

#[test]
fn folder_that_is_none() {
    let folder = folder();
    let secret = folder.path().join("secret");
    let message = failure(command(&secret, 0).output().unwrap());
    assert_eq!(
        message,
        format!("error: {} is not a folder\n", secret.display())
    );
}

#[cfg(unix)]
#[test]
fn interrupt_ends_it_with_success() {
    let mut server = Server::start();
    // An idle connection must not keep it alive.
    let _idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let kill = Command::new("kill")
        .args(["-INT", &server.process.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}
