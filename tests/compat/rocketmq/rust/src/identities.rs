//! Two keys of different rights: what each may do, and what is refused. A line for each, which the runner judges.

use std::future::Future;
use std::time::Duration;

use rocketmq::model::common::FilterType;
use tokio::time::{sleep, timeout};

use crate::base::{check, facts, Context, Facts, Reason, INVISIBLE};

/// For what has to be answered or refused.
const ANSWERED: Duration = Duration::from_secs(20);

async fn say(name: &str, act: impl Future<Output = Result<(), Reason>>) {
    let answer = match timeout(ANSWERED, act).await {
        Ok(Ok(())) => "done".to_string(),
        Ok(Err(Reason::Failed(why))) => format!("refused: {}", why.split_whitespace().collect::<Vec<_>>().join(" ")),
        Ok(Err(Reason::Skipped(why))) => format!("skipped: {why}"),
        Err(_) => format!("no answer in {ANSWERED:?}"),
    };
    println!("{name}: {answer}");
}

async fn send(context: Context) -> Result<(), Reason> {
    let producer = context.producer().await?;
    context.send(&producer, context.message("hello")).await?;
    Ok(producer.shutdown().await?)
}

/// One message, acknowledged.
async fn receive(context: Context) -> Result<(), Reason> {
    let consumer = context.consumer(FilterType::Tag, "*").await?;
    consumer.drain(1, ANSWERED).await?;
    Ok(())
}

/// Both run when "ready" is said, for the runner to remove their keys.
async fn until_revoked(sending: Context, receiving: Context) -> Result<(), Reason> {
    let producer = sending.producer().await?;
    let consumer = receiving.consumer(FilterType::Tag, "*").await?;
    sending.send(&producer, sending.message("hello")).await?;
    consumer.drain(1, ANSWERED).await?;
    println!("ready");
    let sends = say("running-sender", async {
        loop {
            sending.send(&producer, sending.message("hello")).await?;
            sleep(Duration::from_millis(50)).await;
        }
    });
    let receives = say("running-receiver", async {
        loop {
            for message in consumer.poll(INVISIBLE).await? {
                consumer.ack(&message).await?;
            }
        }
    });
    tokio::join!(sends, receives);
    Ok(())
}

/// More words: another topic, the sender's key and secret, the receiver's key and secret.
pub async fn two_keys(context: &Context) -> Result<Facts, Reason> {
    let extra = &context.extra;
    check(extra.len() >= 5, || "more words: OTHER_TOPIC SENDER SECRET RECEIVER SECRET".to_string())?;
    let (topic, group, other) = (context.topic.as_str(), context.group.as_str(), extra[0].as_str());
    let (sender, receiver) = ((extra[1].as_str(), extra[2].as_str()), (extra[3].as_str(), extra[4].as_str()));
    let others = format!("{group}-others");
    let here = |keys| context.keyed(Some(keys), topic, group);
    say("send", send(here(sender))).await;
    say("receive", receive(here(receiver))).await;
    say("receive-by-sender", receive(here(sender))).await;
    say("send-by-receiver", send(here(receiver))).await;
    say("send-elsewhere", send(context.keyed(Some(sender), other, group))).await;
    say("receive-elsewhere", receive(context.keyed(Some(receiver), other, group))).await;
    say("receive-as-others", receive(context.keyed(Some(receiver), topic, &others))).await;
    say("anonymous-sends", send(context.keyed(None, other, group))).await;
    say("anonymous-sends-elsewhere", send(context.keyed(None, topic, group))).await;
    say("anonymous-receives", receive(context.keyed(None, topic, group))).await;
    say("wrong-secret-sends", send(here((sender.0, "wrong")))).await;
    say("wrong-secret-receives", receive(here((receiver.0, "wrong")))).await;
    until_revoked(here(sender), here(receiver)).await?;
    say("revoked-sends", send(here(sender))).await;
    say("revoked-receives", receive(here(receiver))).await;
    Ok(facts([]))
}
