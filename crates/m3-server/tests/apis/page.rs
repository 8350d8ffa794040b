//! The page at `/` as files: what is sent with them, who may have them, and that it can be turned off.

use crate::support::{Server, says};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_its_files_come_with_a_strict_policy() {
    let server = Server::start(says("a"), &["--api-key", "k"]).await;
    for (path, kind) in [("/", "text/html"), ("/ui/app.js", "text/javascript"), ("/ui/style.css", "text/css")]
    {
        let answer = server.client.get(format!("{}{path}", server.base)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path} needs no key");
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert!(header("content-type").starts_with(kind), "{path}: {}", header("content-type"));
        let policy = header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("require-trusted-types-for 'script'")
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header("x-content-type-options"), "nosniff");
    }
    let (status, error) = server.get("/ui/passwd").await;
    assert_eq!((status, &error["error"]["code"]), (404, &"not_found".into()));
    assert_eq!(server.get("/v1/models").await.0, 401, "what the page asks for needs the key");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_can_be_turned_off() {
    let server = Server::start(says("a"), &["--no-ui"]).await;
    for path in ["/", "/ui/app.js"] {
        assert_eq!(server.get(path).await.0, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_info_names_device_and_paths() {
    let server = Server::start(says("a"), &[]).await;
    let (_, info) = server.get("/server_info").await;
    assert_eq!(info["device"], "1 x scripted tokens");
    assert!(
        info["backend_paths"].as_array().unwrap().iter().all(|line| line.as_str().unwrap().contains(": "))
    );
}
