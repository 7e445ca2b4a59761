//! `tests/clients/run`: every Kafka client through the same cycle; prints what passed. 1 when anything did not.

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use kafscale_proxy_tests::compatibility::{Length, Row, Stage, check, render};
use kafscale_proxy_tests::peers::Client;
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};

/// Clients that are at work at the same time: most of it they wait, for groups that settle.
const AT_ONCE: usize = 4;

#[tokio::main]
async fn main() -> ExitCode {
    let mut length = Length::FULL;
    let mut clients = Vec::new();
    let mut elsewhere = None;
    for argument in std::env::args().skip(1) {
        if let Some(bootstrap) = argument.strip_prefix("--at=") {
            elsewhere = Some(bootstrap.to_owned());
        } else if argument == "--quick" {
            length = Length::QUICK;
        } else if let Some(client) = Client::ALL.into_iter().find(|client| client.name() == argument) {
            clients.push(client);
        } else {
            let names: Vec<&str> = Client::ALL.into_iter().map(Client::name).collect();
            eprintln!("usage: tests/clients/run [--quick] [--at=HOST:PORT] [CLIENT...]\nclients: {}", names.join(" "));
            return ExitCode::from(2);
        }
    }
    if clients.is_empty() {
        clients.extend(Client::ALL);
    }
    let started = Instant::now();
    let stage = Rc::new(match elsewhere {
        Some(bootstrap) => Stage::elsewhere(&bootstrap),
        None => Stage::start().await,
    });
    let mut rows: Vec<Row> = LocalSet::new().run_until(check_all(stage, clients, length)).await;
    rows.sort_by_key(|row| Client::ALL.iter().position(|client| *client == row.client));
    println!("{}", render(&rows));
    let failures: Vec<String> = rows
        .iter()
        .flat_map(|row| row.failures().map(|(column, why)| format!("{}, {column:?}: {why}", row.client.name())))
        .collect();
    for failure in &failures {
        println!("✗ {failure}");
    }
    println!("{} clients, {} failures, {} s", rows.len(), failures.len(), started.elapsed().as_secs());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn check_all(stage: Rc<Stage>, clients: Vec<Client>, length: Length) -> Vec<Row> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut checks = Vec::new();
    for client in clients {
        let (stage, turns) = (Rc::clone(&stage), Arc::clone(&turns));
        let checking = spawn_local(async move {
            let _turn = turns.acquire_owned().await.expect("it is never closed");
            check(&stage, client, length).await
        });
        checks.push((client, checking));
    }
    let mut rows = Vec::new();
    for (client, checking) in checks {
        rows.push(checking.await.unwrap_or_else(|error| Row::broken(client, &error.to_string())));
    }
    rows
}
