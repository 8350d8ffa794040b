//! Answers cut at awkward places, and a server of a few lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use super::*;

#[test]
fn events_are_found_however_the_answer_is_cut_into_chunks() {
    let events = "data: {\"a\":1}\n\ndata: two\n\n: a comment\n\ndata: [DONE]\n\n";
    for size in 1..events.len() {
        let mut answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        for chunk in events.as_bytes().chunks(size) {
            answer += &format!("{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk).unwrap());
        }
        answer += "0\r\n\r\n";
        let mut stream = EventStream::over(answer.as_bytes()).unwrap();
        assert_eq!(stream.next_event().unwrap().as_deref(), Some("{\"a\":1}"));
        assert_eq!(stream.next_event().unwrap().as_deref(), Some("two"));
        assert_eq!(stream.next_event().unwrap(), None);
    }
}

#[test]
fn refusals_and_cut_answers_are_errors() {
    let refusal = "HTTP/1.1 400 Bad Request\r\nContent-Length: 8\r\n\r\ntoo long";
    let error = EventStream::over(refusal.as_bytes()).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "HTTP/1.1 400 Bad Request: too long");
    let cut = "HTTP/1.1 200 OK\r\n\r\ndata: one\n\n";
    let mut stream = EventStream::over(cut.as_bytes()).unwrap();
    stream.next_event().unwrap();
    assert!(stream.next_event().unwrap_err().to_string().contains("without `[DONE]`"));
}

/// Answers every request with `tokens` events, and says so.
fn server(tokens: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["prompt"].as_array().unwrap().len(), 7);
            write!(socket, "HTTP/1.1 200 OK\r\n\r\n").unwrap();
            for _ in 0..tokens {
                write!(socket, "data: {{\"choices\":[{{\"text\":\"x\"}}]}}\n\n").unwrap();
            }
            let usage = format!("{{\"choices\":[],\"usage\":{{\"completion_tokens\":{tokens}}}}}");
            write!(socket, "data: {usage}\n\ndata: [DONE]\n\n").unwrap();
        }
    });
    address
}

fn load(address: String, output: usize) -> Load {
    Load { address, model: "m3".to_owned(), input: 7, output, concurrency: vec![3], rounds: 2, ids: 100 }
}

#[test]
fn every_request_of_every_stream_is_counted() {
    let report = load(server(5), 5).measure(3);
    assert_eq!(report.failures, Vec::<String>::new());
    assert_eq!(report.requests, 6);
    assert!(report.output_tokens_per_s > 0.0 && report.ttft_ms.median > 0.0);
    assert!(report.itl_ms.median.is_finite() && report.tpot_ms.p99.is_finite());
}

#[test]
fn an_answer_that_is_too_short_is_a_failure() {
    let report = load(server(4), 5).measure(1);
    assert_eq!((report.requests, report.failures.len()), (0, 2));
    assert_eq!(report.failures[0], "4 tokens came, 5 were asked for");
}

#[test]
fn prompts_differ_from_their_first_tokens_on() {
    let load = load(String::new(), 1);
    let mut starts: Vec<_> = (0..64).map(|number| load.prompt(64, number)[..2].to_vec()).collect();
    starts.sort_unstable();
    starts.dedup();
    assert!(starts.len() > 60, "{} of 64", starts.len());
}
