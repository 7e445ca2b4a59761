use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use super::*;

const LIMITS: HttpServerSettings = HttpServerSettings {
    header_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(60),
    max_header_bytes: 16 * 1024,
    max_connections: 100,
};

/// Sends one request to a metrics server; gives its answer, head and body.
async fn ask(metrics: &Rc<Metrics>, line: &str) -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    metrics.serve(stream, peer, LIMITS, Place::unlimited());
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

fn turned_away(clients: u64) -> ShardStats {
    let mut stats = ShardStats::default();
    stats.listener.turned_away = clients;
    stats
}

#[test]
fn a_shard_that_is_too_busy_to_answer_is_shown_as_it_was() {
    run(async {
        let (shard, mut questions) = ShardHandle::detached();
        let metrics = Rc::new(Metrics::new(Rc::new(vec![shard]), None));
        let series = "kafscale_proxy_budget_refusals_total{shard=\"0\",budget=\"kafka_connections\"} ";
        let age = "kafscale_proxy_shard_stats_age_seconds{shard=\"0\"} ";
        let shown = |page: &str, series: &str| {
            page.lines().find_map(|line| line.strip_prefix(series)).map(|value| value.parse::<f64>().unwrap())
        };

        let (_, page) = ask(&metrics, "GET /metrics").await;
        assert_eq!(shown(&page, series), None, "it has never answered");
        assert_eq!(shown(&page, "kafscale_proxy_shards "), Some(1.0));
        drop(questions());

        let asking = spawn_local({
            let metrics = Rc::clone(&metrics);
            async move { ask(&metrics, "GET /metrics").await }
        });
        let question = loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(question) = questions() {
                break question;
            }
        };
        question.send(turned_away(7)).unwrap();
        let (head, page) = asking.await.unwrap();
        assert!(head.starts_with("http/1.1 200") && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert_eq!(shown(&page, series), Some(7.0));
        assert!(shown(&page, age).unwrap() < 0.5);

        let (_, page) = ask(&metrics, "GET /metrics").await;
        assert_eq!(shown(&page, series), Some(7.0));
        assert!(shown(&page, age).unwrap() >= 1.0, "{:?}", shown(&page, age));
    });
}

#[test]
fn there_is_one_page_and_it_can_only_be_read() {
    run(async {
        let metrics = Rc::new(Metrics::new(Rc::default(), None));
        for (line, status, body) in [
            ("GET /metrics?name=x", "200", "# HELP"),
            ("HEAD /metrics", "200", ""),
            ("POST /metrics", "405", "metrics are read with GET\n"),
            ("GET /", "404", "metrics are at /metrics\n"),
        ] {
            let (head, answer) = ask(&metrics, line).await;
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{line}: {head}");
            assert!(answer.starts_with(body) && answer.is_empty() == body.is_empty(), "{line}: {answer}");
        }
    });
}
