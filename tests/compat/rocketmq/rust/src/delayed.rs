//! Messages that are not delivered when they are sent: delays and transactions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq::model::transaction::{Transaction, TransactionResolution};

use crate::base::{check, facts, now_ms, rounded, same, texts, Context, Facts, Reason, QUIET, TIMEOUT};

/// RocketMQ is up to 1.1 s late; Tarry is measured elsewhere.
const LATE_MS_MAX: f64 = 2500.0;
/// RocketMQ asks for a transaction that is left undecided about 30 s later.
const ASKED: Duration = Duration::from_secs(120);

/// Never early. This client can only say whole seconds.
pub async fn delay(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    let first_s = (now_ms() / 1000.0) as i64 + 3;
    let due_s: BTreeMap<String, i64> = (0..9).map(|index| (format!("delay {index}"), first_s + index / 3)).collect();
    for (body, due) in &due_s {
        context.send(&producer, context.message(body.as_str()).set_delivery_timestamp(*due)).await?;
    }
    let came = consumer.drain(due_s.len(), TIMEOUT).await?;
    consumer.nothing(Duration::from_secs(1)).await?;
    same("bodies", texts(&came), due_s.keys().cloned().collect())?;
    let mut lateness = Vec::new();
    for one in &came {
        let due = due_s[&one.text()];
        same("delivery timestamp", one.view.delivery_timestamp(), Some(due))?;
        lateness.push(one.at_ms - due as f64 * 1000.0);
    }
    lateness.sort_by(f64::total_cmp);
    let (least, most) = (lateness[0], lateness[lateness.len() - 1]);
    check(least >= 0.0 && most <= LATE_MS_MAX, || format!("between {least} and {most} ms late"))?;
    Ok(facts([
        ("messages", came.len().into()),
        ("precision_ms", 1000.into()),
        ("lateness_ms_min", rounded(least).into()),
        ("lateness_ms_mean", rounded(lateness.iter().sum::<f64>() / lateness.len() as f64).into()),
        ("lateness_ms_max", rounded(most).into()),
    ]))
}

/// Due already: delivered at once.
pub async fn past_delay(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    let sent_ms = now_ms();
    for past in [1, 60, 86_400] {
        let due = (now_ms() / 1000.0) as i64 - past;
        context.send(&producer, context.message(format!("{past} s ago")).set_delivery_timestamp(due)).await?;
    }
    let came = consumer.drain(3, TIMEOUT).await?;
    let waited_ms = came[2].at_ms - sent_ms;
    check(waited_ms <= 3000.0, || format!("came after {waited_ms} ms"))?;
    consumer.nothing(QUIET).await?;
    Ok(facts([("messages", 3.into()), ("waited_ms", rounded(waited_ms).into())]))
}

/// Committed: delivered. Rolled back: not. Undecided: the checker is asked, and commits.
pub async fn transaction(context: &Context) -> Result<Facts, Reason> {
    let asked: Arc<Mutex<Vec<(String, f64)>>> = Arc::default();
    let asking = Arc::clone(&asked);
    let producer = context
        .transaction_producer(Box::new(move |_, message| {
            let body = String::from_utf8_lossy(message.body());
            asking.lock().unwrap().push((format!("{body} {}", message.message_id()), now_ms()));
            TransactionResolution::COMMIT
        }))
        .await?;
    let (_, consumer) = context.both().await?;
    let mut ids = BTreeMap::new();
    for body in ["commit", "rollback", "undecided"] {
        let message = context.message(body).set_tag("transaction").enable_transaction().build()?;
        let begun = producer.send_transaction_message(message).await?;
        ids.insert(body, begun.message_id().to_string());
        match body {
            "commit" => begun.commit().await?,
            "rollback" => begun.rollback().await?,
            _ => {}
        }
    }
    let sent_ms = now_ms();
    let committed = consumer.drain(1, TIMEOUT).await?.remove(0);
    same(
        "first message",
        (committed.text().as_str(), committed.view.message_id()),
        ("commit", ids["commit"].as_str()),
    )?;
    let decided = consumer.drain(1, ASKED).await?.remove(0);
    let expected = ("undecided", ids["undecided"].as_str());
    same("second message", (decided.text().as_str(), decided.view.message_id()), expected)?;
    same("its tag", decided.view.tag(), Some("transaction"))?;
    consumer.nothing(QUIET).await?;
    let asked = asked.lock().unwrap();
    // Asked twice where the answer was slow, but about nothing else.
    for (what, _) in asked.iter() {
        same("message that the checker was asked about", what, &format!("undecided {}", ids["undecided"]))?;
    }
    check(!asked.is_empty(), || "the checker was not asked".to_string())?;
    let after_ms = (asked[0].1 - sent_ms).round();
    Ok(facts([("asked", asked.len().into()), ("asked_after_ms", after_ms.into())]))
}
