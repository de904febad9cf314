//! ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with the official Rust client, one line of JSON.

mod base;
mod delayed;
mod identities;
mod plain;
mod standing;

use std::process::exit;
use std::sync::atomic::Ordering;

use base::{Context, Facts, Reason};

const CLIENT: &str = "rocketmq (crate) 5.0.0";
const NO_PUSH: &str = "this client has no PushConsumer";

async fn run(name: &str, context: &Context) -> Result<Facts, Reason> {
    match name {
        "normal" => plain::normal(context).await,
        "tag-filter" => plain::tag_filter(context).await,
        "sql-filter" => plain::sql_filter(context).await,
        "redelivery" => plain::redelivery(context).await,
        "large" => plain::large(context).await,
        "many-properties" => plain::many_properties(context).await,
        "gzip" => plain::compressible(context).await,
        "unicode" => plain::unicode(context).await,
        "fifo" => plain::fifo(context).await,
        "delay" => delayed::delay(context).await,
        "past-delay" => delayed::past_delay(context).await,
        "transaction" => delayed::transaction(context).await,
        "reconnect" => standing::reconnect(context).await,
        "idle" => standing::idle(context).await,
        "identities" => identities::two_keys(context).await,
        "invisible" => Err(Reason::Skipped("this client cannot change a lease")),
        "recall" => Err(Reason::Skipped("this client cannot recall, and hides the handle")),
        "namespaces" => Err(Reason::Skipped("this client hides its setting of the namespace")),
        "push" | "push-retry" | "push-dead" | "reconnect-push" => Err(Reason::Skipped(NO_PUSH)),
        _ => Err(Reason::Failed(format!("there is no scenario {name}"))),
    }
}

// Where a server ends a telemetry stream with an error, this client reads the same error again without end, on a thread
// of the runtime: with as many threads as a small machine has cores, nothing else would go on.
#[tokio::main(worker_threads = 8)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() < 4 {
        eprintln!("usage: ENDPOINT SCENARIO TOPIC GROUP [...]");
        exit(2);
    }
    let name = arguments[1].as_str();
    let context = Context::new(&arguments);
    let facts = match run(name, &context).await {
        Ok(facts) => facts,
        Err(Reason::Skipped(why)) => base::facts([("skipped", why.into())]),
        Err(Reason::Failed(why)) => {
            eprintln!("{name}: {why}");
            exit(1);
        }
    };
    let mut said = base::facts([("client", CLIENT.into()), ("scenario", name.into())]);
    said.extend(facts);
    let expired = base::EXPIRED_POLLS.load(Ordering::Relaxed);
    if expired > 0 {
        said.insert("expired_polls".to_string(), expired.into());
    }
    println!("{}", serde_json::Value::Object(said));
    // Clients are left open: their shutdown takes them by value, which shared ones cannot give.
    exit(0);
}
