//! What the scenarios share: clients of the official crate, and checks that give a reason.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::TransactionChecker;
use rocketmq::{Producer, SimpleConsumer};

pub const INVISIBLE: Duration = Duration::from_secs(30);
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// For how long nothing may come where nothing is expected any more.
pub const QUIET: Duration = Duration::from_secs(3);
/// Long polling, and the deadline of the call at the same time: the server had better answer a little before. The original
/// does not always; such a poll brought nothing, and is counted.
const LONG_POLLING: Duration = Duration::from_secs(6);

pub static EXPIRED_POLLS: AtomicUsize = AtomicUsize::new(0);

pub type Facts = serde_json::Map<String, serde_json::Value>;

/// Why there are no facts.
pub enum Reason {
    Failed(String),
    Skipped(&'static str),
}

impl From<ClientError> for Reason {
    fn from(error: ClientError) -> Self {
        Reason::Failed(format!("{error}"))
    }
}

pub fn facts<const N: usize>(pairs: [(&str, serde_json::Value); N]) -> Facts {
    pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

pub fn check(condition: bool, reason: impl FnOnce() -> String) -> Result<(), Reason> {
    if condition {
        Ok(())
    } else {
        Err(Reason::Failed(reason()))
    }
}

pub fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), Reason> {
    check(found == expected, || format!("{what}: {found:.300?} instead of {expected:.300?}"))
}

pub fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0
}

pub fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

pub fn sorted(texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut found: Vec<String> = texts.into_iter().map(Into::into).collect();
    found.sort();
    found
}

/// The name of the server's status code, or nothing where the client refused by itself.
pub fn refused<T>(what: &str, result: Result<T, ClientError>) -> Result<Option<String>, Reason> {
    match result {
        Ok(_) => Err(Reason::Failed(format!("{what} was not refused"))),
        Err(error) => Ok(error.context().iter().find(|(name, _)| *name == "code").map(|(_, code)| code.clone())),
    }
}

/// A message, and the wall clock when the client handed it out.
pub struct Received {
    pub view: MessageView,
    pub at_ms: f64,
}

impl Received {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.view.body()).into_owned()
    }
}

pub fn texts(received: &[Received]) -> Vec<String> {
    sorted(received.iter().map(Received::text))
}

/// What the command line says, and clients for it.
pub struct Context {
    pub topic: String,
    pub group: String,
    pub extra: Vec<String>,
    endpoint: String,
    keys: Option<(String, String)>,
}

impl Context {
    pub fn new(arguments: &[String]) -> Self {
        Context {
            endpoint: arguments[0].clone(),
            topic: arguments[2].clone(),
            group: arguments[3].clone(),
            extra: arguments[4..].to_vec(),
            keys: None,
        }
    }

    /// The same broker with an access key and its secret, or without, and other names.
    pub fn keyed(&self, keys: Option<(&str, &str)>, topic: &str, group: &str) -> Self {
        Context {
            endpoint: self.endpoint.clone(),
            topic: topic.to_string(),
            group: group.to_string(),
            extra: Vec::new(),
            keys: keys.map(|(key, secret)| (key.to_string(), secret.to_string())),
        }
    }

    pub fn number(&self, index: usize, other: usize) -> usize {
        self.extra.get(index).and_then(|text| text.parse().ok()).unwrap_or(other)
    }

    fn client(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.endpoint.clone());
        option.set_enable_tls(false);
        option.set_long_polling_timeout(LONG_POLLING);
        if let Some((key, secret)) = &self.keys {
            option.set_access_key(key.clone());
            option.set_secret_key(secret.clone());
        }
        option
    }

    fn producing(&self) -> ProducerOption {
        let mut option = ProducerOption::default();
        option.set_logging_format(LoggingFormat::Json);
        option.set_topics(vec![self.topic.clone()]);
        option
    }

    pub async fn producer(&self) -> Result<Producer, Reason> {
        let mut producer = Producer::new(self.producing(), self.client())?;
        producer.start().await?;
        Ok(producer)
    }

    pub async fn transaction_producer(&self, checker: Box<TransactionChecker>) -> Result<Producer, Reason> {
        let mut producer = Producer::new_transaction_producer(self.producing(), self.client(), checker)?;
        producer.start().await?;
        Ok(producer)
    }

    pub async fn simple(&self) -> Result<SimpleConsumer, Reason> {
        let mut option = SimpleConsumerOption::default();
        option.set_logging_format(LoggingFormat::Json);
        option.set_consumer_group(self.group.clone());
        option.set_topics(vec![self.topic.clone()]);
        let mut consumer = SimpleConsumer::new(option, self.client())?;
        consumer.start().await?;
        Ok(consumer)
    }

    pub async fn both(&self) -> Result<(Producer, Consumer<'_>), Reason> {
        let producer = self.producer().await?;
        Ok((producer, self.consumer(FilterType::Tag, "*").await?))
    }

    pub async fn consumer(&self, kind: FilterType, expression: &str) -> Result<Consumer<'_>, Reason> {
        let consumer = self.simple().await?;
        Ok(Consumer { consumer, topic: &self.topic, filter: FilterExpression::new(kind, expression) })
    }

    pub fn message(&self, body: impl Into<Vec<u8>>) -> MessageBuilder {
        MessageBuilder::builder().set_topic(self.topic.clone()).set_body(body.into())
    }

    pub async fn send(&self, producer: &Producer, message: MessageBuilder) -> Result<String, Reason> {
        Ok(producer.send(message.build()?).await?.message_id().to_string())
    }
}

/// A simple consumer of one topic.
pub struct Consumer<'a> {
    consumer: SimpleConsumer,
    topic: &'a str,
    filter: FilterExpression,
}

impl Consumer<'_> {
    /// One long poll.
    pub async fn poll(&self, invisible: Duration) -> Result<Vec<Received>, ClientError> {
        let result = self.consumer.receive_with(self.topic, &self.filter, 16, invisible).await;
        let at_ms = now_ms();
        if matches!(&result, Err(error) if error.to_string().contains("status: Cancelled")) {
            EXPIRED_POLLS.fetch_add(1, Ordering::Relaxed);
            return Ok(Vec::new());
        }
        Ok(result?.into_iter().map(|view| Received { view, at_ms }).collect())
    }

    pub async fn ack(&self, message: &Received) -> Result<(), ClientError> {
        self.consumer.ack(&message.view).await
    }

    /// So many messages, in the order in which they came, not acknowledged.
    pub async fn receive(&self, count: usize, invisible: Duration) -> Result<Vec<Received>, Reason> {
        let began = Instant::now();
        let mut found = Vec::new();
        while found.len() < count {
            check(began.elapsed() < TIMEOUT, || format!("{} of {count} messages after {TIMEOUT:?}", found.len()))?;
            found.extend(self.poll(invisible).await?);
        }
        same("messages received", found.len(), count)?;
        Ok(found)
    }

    /// So many messages, each acknowledged as it comes.
    pub async fn drain(&self, count: usize, limit: Duration) -> Result<Vec<Received>, Reason> {
        let began = Instant::now();
        let mut found = Vec::new();
        while found.len() < count {
            check(began.elapsed() < limit, || format!("{} of {count} messages after {limit:?}", found.len()))?;
            for message in self.poll(INVISIBLE).await? {
                self.ack(&message).await?;
                found.push(message);
            }
        }
        Ok(found)
    }

    /// Nothing may come for so long.
    pub async fn nothing(&self, limit: Duration) -> Result<(), Reason> {
        let began = Instant::now();
        while began.elapsed() < limit {
            let came = self.poll(INVISIBLE).await?;
            check(came.is_empty(), || format!("something is left: {:.300?}", texts(&came)))?;
        }
        Ok(())
    }
}

pub fn properties(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}
