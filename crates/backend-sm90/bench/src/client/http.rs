//! One POST over HTTP/1.1 and the server-sent events of its answer, as they come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// A server that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(600);

/// The answer's events.
pub(super) struct EventStream<R = TcpStream> {
    lines: BufReader<Body<R>>,
}

impl EventStream {
    pub(super) fn post(address: &str, path: &str, body: &str) -> Result<Self> {
        let mut socket = TcpStream::connect(address).with_context(|| address.to_owned())?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        Self::over(socket)
    }
}

impl<R: Read> EventStream<R> {
    /// Reads the head of the answer.
    pub(super) fn over(socket: R) -> Result<Self> {
        let mut reader = BufReader::new(socket);
        let status = line(&mut reader)?;
        let mut chunked = false;
        loop {
            let header = line(&mut reader)?.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            chunked |= header.starts_with("transfer-encoding:") && header.contains("chunked");
        }
        let mut body = Body { reader, chunked, left: 0, over: false };
        if status.split(' ').nth(1) != Some("200") {
            let mut text = String::new();
            body.read_to_string(&mut text)?;
            bail!("{status}: {text}");
        }
        Ok(EventStream { lines: BufReader::new(body) })
    }

    /// The next event's data; `None` behind the last one.
    pub(super) fn next_event(&mut self) -> Result<Option<String>> {
        loop {
            let mut line = String::new();
            ensure!(self.lines.read_line(&mut line)? > 0, "the answer ended without `[DONE]`");
            match line.trim_end().strip_prefix("data:") {
                Some(data) if data.trim() == "[DONE]" => return Ok(None),
                Some(data) => return Ok(Some(data.trim().to_owned())),
                None => {}
            }
        }
    }
}

fn line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    ensure!(reader.read_line(&mut line)? > 0, "the server closed the connection");
    Ok(line.trim_end().to_owned())
}

/// The body without the frames of the chunked encoding.
struct Body<R> {
    reader: BufReader<R>,
    chunked: bool,
    /// Bytes of the chunk that were not read yet.
    left: usize,
    over: bool,
}

impl<R: Read> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !self.chunked {
            return self.reader.read(buffer);
        }
        if self.left == 0 && !self.over {
            self.left = self.chunk()?;
            self.over = self.left == 0;
        }
        if self.over {
            return Ok(0);
        }
        let most = self.left.min(buffer.len());
        let count = self.reader.read(&mut buffer[..most])?;
        self.left -= count;
        if self.left == 0 {
            self.reader.read_line(&mut String::new())?;
        }
        Ok(count)
    }
}

impl<R: Read> Body<R> {
    /// The next chunk's length.
    fn chunk(&mut self) -> std::io::Result<usize> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        usize::from_str_radix(digits, 16)
            .map_err(|_| std::io::Error::other(format!("a chunk of `{digits}` bytes")))
    }
}
