use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A web server that answers by script, one connection per request, until the process ends.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// With the query string.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
}

impl Asked {
    /// The bytes asked for, half open, cut to a file of `file_bytes`.
    pub(crate) fn range(&self, file_bytes: usize) -> std::ops::Range<usize> {
        let value = self.headers["range"].strip_prefix("bytes=").unwrap();
        let (first, last) = value.split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        first.min(file_bytes)..(last + 1).min(file_bytes)
    }
}

/// What the server sends. `Content-Length` is the body's length unless a header says otherwise.
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Answer {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// Status 206 with chunked transfer encoding.
    pub(crate) fn chunked<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut body = Vec::new();
        for piece in pieces {
            body.extend(format!("{:x}\r\n", piece.len()).bytes());
            body.extend(piece);
            body.extend(b"\r\n");
        }
        body.extend(b"0\r\n\r\n");
        Answer::new(206, body).with("Transfer-Encoding", "chunked")
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// What a server that knows ranges answers.
    pub(crate) fn range(asked: &Asked, file: &[u8]) -> Self {
        let range = asked.range(file.len());
        let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, file.len());
        Answer::new(206, &file[range]).with("Content-Range", content_range)
    }

    fn send(self, mut stream: TcpStream) -> std::io::Result<()> {
        write!(
            stream,
            "HTTP/1.1 {} Scripted\r\nConnection: close\r\n",
            self.status
        )?;
        let named = |name| self.headers.iter().any(|(other, _)| *other == name);
        if !named("Content-Length") && !named("Transfer-Encoding") {
            write!(stream, "Content-Length: {}\r\n", self.body.len())?;
        }
        for (name, value) in &self.headers {
            write!(stream, "{name}: {value}\r\n")?;
        }
        stream.write_all(b"\r\n")?;
        stream.write_all(&self.body)
    }
}

impl Server {
    pub(crate) fn start(script: impl Fn(&Asked) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let asked = read_request(&stream);
                log.lock().unwrap().push(asked.clone());
                // The client may have heard enough and hung up.
                let _ = script(&asked).send(stream);
            }
        });
        Server { url, asked }
    }

    /// Everything that was asked so far, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Asked {
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let request_line = lines.next().unwrap();
    let path = request_line.split(' ').nth(1).unwrap().to_owned();
    let header = |line: String| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers = lines
        .take_while(|line| !line.is_empty())
        .map(header)
        .collect();
    Asked { path, headers }
}
