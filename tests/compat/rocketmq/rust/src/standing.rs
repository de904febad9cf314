//! Clients that stay: through restarts of the broker, and many that only wait.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::SimpleConsumer;
use tokio::time::sleep;

use crate::base::{check, facts, same, sorted, Context, Facts, Reason, QUIET};

/// After the last send, until all is received: a lease that a restart cut short has to end first.
const TIMEOUT: Duration = Duration::from_secs(120);
const INVISIBLE: Duration = Duration::from_secs(10);

type Bodies = Arc<Mutex<Vec<String>>>;

/// Receives and acknowledges for ever, and goes on after errors.
async fn receive_for_ever(consumer: SimpleConsumer, topic: String, bodies: Bodies) {
    let filter = FilterExpression::new(FilterType::Tag, "*");
    loop {
        match consumer.receive_with(&topic, &filter, 16, INVISIBLE).await {
            Ok(messages) => {
                for message in messages {
                    bodies.lock().unwrap().push(String::from_utf8_lossy(message.body()).into_owned());
                    let _ = consumer.ack(&message).await;
                }
            }
            // The broker is away.
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

/// One message each 100 ms while the broker is killed and started again; what was acknowledged is received.
pub async fn reconnect(context: &Context) -> Result<Facts, Reason> {
    let wanted = context.number(0, 300);
    let producer = context.producer().await?;
    let bodies = Bodies::default();
    tokio::spawn(receive_for_ever(context.simple().await?, context.topic.clone(), Arc::clone(&bodies)));
    let mut acknowledged = HashSet::new();
    let (mut errors, mut attempt, mut longest, mut answered) = (0, 0, Duration::ZERO, Instant::now());
    while acknowledged.len() < wanted {
        let body = format!("reconnect {attempt}");
        attempt += 1;
        match context.send(&producer, context.message(body.as_str())).await {
            Ok(_) => {
                longest = longest.max(answered.elapsed());
                answered = Instant::now();
                acknowledged.insert(body);
                if acknowledged.len() == 1 {
                    eprintln!("ready");
                }
            }
            Err(_) => {
                errors += 1;
                check(answered.elapsed() < TIMEOUT, || format!("no send succeeds for {TIMEOUT:?}"))?;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    let began = Instant::now();
    loop {
        let received: HashSet<String> = bodies.lock().unwrap().iter().cloned().collect();
        let missing: Vec<&String> = acknowledged.difference(&received).collect();
        if missing.is_empty() {
            break;
        }
        check(began.elapsed() < TIMEOUT, || format!("lost: {} of {wanted}: {missing:.300?}", missing.len()))?;
        sleep(Duration::from_millis(100)).await;
    }
    let received = bodies.lock().unwrap().clone();
    let distinct: HashSet<&String> = received.iter().collect();
    let unacknowledged = distinct.iter().filter(|body| !acknowledged.contains(**body)).count();
    Ok(facts([
        ("acknowledged", wanted.into()),
        ("send_errors", errors.into()),
        ("outage_ms", (longest.as_millis() as u64).into()),
        ("received", received.len().into()),
        ("duplicates", (received.len() - distinct.len()).into()),
        ("unacknowledged_received", unacknowledged.into()),
    ]))
}

/// Many SimpleConsumers of one group that only wait; then they still share what comes.
pub async fn idle(context: &Context) -> Result<Facts, Reason> {
    let (clients, seconds) = (context.number(0, 20), context.number(1, 10));
    let producer = context.producer().await?;
    let bodies = Bodies::default();
    let began = Instant::now();
    for _ in 0..clients {
        tokio::spawn(receive_for_ever(context.simple().await?, context.topic.clone(), Arc::clone(&bodies)));
    }
    let connected_s = began.elapsed().as_secs_f64();
    eprintln!("ready");
    sleep(Duration::from_secs(seconds as u64)).await;
    same("messages while idle", bodies.lock().unwrap().len(), 0)?;
    for index in 0..clients {
        context.send(&producer, context.message(format!("idle {index}"))).await?;
    }
    let began = Instant::now();
    loop {
        let count = bodies.lock().unwrap().len();
        if count >= clients {
            break;
        }
        check(began.elapsed() < TIMEOUT, || format!("{count} of {clients} messages after {TIMEOUT:?}"))?;
        sleep(Duration::from_millis(10)).await;
    }
    sleep(QUIET).await;
    let expected = sorted((0..clients).map(|index| format!("idle {index}")));
    same("bodies", sorted(bodies.lock().unwrap().iter().cloned()), expected)?;
    Ok(facts([("clients", clients.into()), ("connected_s", connected_s.into()), ("idle_s", seconds.into())]))
}
