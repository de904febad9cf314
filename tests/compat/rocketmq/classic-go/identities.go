// Two keys of different rights: what each may do, and what is refused. A line for each, which the runner judges.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// For what has to be answered or refused.
const answered = 20 * time.Second

// Until a message that was consumed is noted, so that the end of the consumer tells the broker. The client has no word for it.
const noted = time.Second

// A push consumer tells of refusals in the log alone: this one keeps what has the words of a refusal.
type refusals struct {
	lock  sync.Mutex
	texts []string
}

func (r *refusals) keep(text string, fields map[string]interface{}) {
	line := fmt.Sprint(text, " ", fields)
	if strings.Contains(line, "has not the right") || strings.Contains(line, "signature of access key") {
		r.lock.Lock()
		defer r.lock.Unlock()
		r.texts = append(r.texts, line)
	}
}

func (r *refusals) forget() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.texts = nil
}

// The first one that has all words.
func (r *refusals) with(words ...string) string {
	r.lock.Lock()
	defer r.lock.Unlock()
next:
	for _, text := range r.texts {
		for _, word := range words {
			if !strings.Contains(text, word) {
				continue next
			}
		}
		return text
	}
	return ""
}

func (r *refusals) Debug(string, map[string]interface{})               {}
func (r *refusals) Info(string, map[string]interface{})                {}
func (r *refusals) Warning(text string, fields map[string]interface{}) { r.keep(text, fields) }
func (r *refusals) Error(text string, fields map[string]interface{})   { r.keep(text, fields) }
func (r *refusals) Fatal(text string, fields map[string]interface{})   { r.keep(text, fields) }
func (r *refusals) Level(string)                                       {}
func (r *refusals) OutputPath(string) error                            { return nil }

var refused refusals

// One key, and an instance name of its own for each client: clients of one name share a connection, and its key.
type keyed struct {
	names
	keys primitive.Credentials
}

var instances int

func instance() string {
	instances++
	return fmt.Sprint("keyed-", instances)
}

func (k keyed) producer() (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{k.endpoint}), producer.WithCredentials(k.keys),
		producer.WithGroupName(k.group+"-producers"), producer.WithInstanceName(instance()), producer.WithRetry(0))
	if err == nil {
		err = p.Start()
	}
	return p, err
}

func (k keyed) send() error {
	p, err := k.producer()
	if err != nil {
		return err
	}
	defer p.Shutdown()
	_, err = p.SendSync(context.Background(), primitive.NewMessage(k.topic, []byte("hello")))
	return err
}

// A push consumer, and what it gets.
func (k keyed) consumer() (rocketmq.PushConsumer, chan string, error) {
	came := make(chan string, 1000)
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer([]string{k.endpoint}), consumer.WithCredentials(k.keys),
		consumer.WithGroupName(k.group), consumer.WithInstance(instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, nil, err
	}
	listen := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			came <- string(message.Body)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = c.Subscribe(k.topic, consumer.MessageSelector{}, listen); err == nil {
		err = c.Start()
	}
	return c, came, err
}

func (k keyed) receive(words ...string) error {
	refused.forget()
	c, came, err := k.consumer()
	if c != nil {
		defer c.Shutdown() // one that could not start goes on trying, and its refusals would be taken for another's
	}
	if err != nil {
		if text := refused.with(words...); text != "" {
			return fmt.Errorf("%w; %s", err, text)
		}
		return err
	}
	err = refusedOr(came, words...)
	if err == nil {
		time.Sleep(noted)
	}
	return err
}

// A message is nil, and a refusal in the log is an error.
func refusedOr(came chan string, words ...string) error {
	for {
		select {
		case <-came:
			return nil
		case <-time.After(20 * time.Millisecond):
			if text := refused.with(words...); text != "" {
				return errors.New(text)
			}
		}
	}
}

func say(name string, act func() error) {
	ended := make(chan error, 1)
	go func() { ended <- act() }()
	select {
	case err := <-ended:
		if err == nil {
			fmt.Println(name + ": done")
		} else {
			fmt.Println(name + ": refused: " + strings.Join(strings.Fields(err.Error()), " "))
		}
	case <-time.After(answered):
		fmt.Println(name+": no answer in", answered)
	}
}

// More words: another topic, the sender's key and secret, the receiver's key and secret.
func twoKeys(n names) (map[string]any, error) {
	if len(os.Args) < 10 {
		return nil, errors.New("more words: OTHER_TOPIC SENDER SECRET RECEIVER SECRET")
	}
	rlog.SetLogger(&refused)
	elsewhere := names{n.endpoint, os.Args[5], n.group}
	sender := primitive.Credentials{AccessKey: os.Args[6], SecretKey: os.Args[7]}
	receiver := primitive.Credentials{AccessKey: os.Args[8], SecretKey: os.Args[9]}
	wrong := func(keys primitive.Credentials) primitive.Credentials {
		return primitive.Credentials{AccessKey: keys.AccessKey, SecretKey: "wrong"}
	}
	nobody := "signature of access key"
	say("send", keyed{n, sender}.send)
	say("receive", func() error { return keyed{n, receiver}.receive(n.topic) })
	say("receive-by-sender", func() error { return keyed{n, sender}.receive("right consume", n.group) })
	say("send-by-receiver", keyed{n, receiver}.send)
	say("send-elsewhere", keyed{elsewhere, sender}.send)
	say("receive-elsewhere", func() error { return keyed{elsewhere, receiver}.receive(elsewhere.topic) })
	others := names{n.endpoint, n.topic, n.group + "-others"}
	say("receive-as-others", func() error { return keyed{others, receiver}.receive("right consume", others.group) })
	unkeyed := primitive.Credentials{}
	say("anonymous-sends", keyed{elsewhere, unkeyed}.send)
	say("anonymous-sends-elsewhere", keyed{n, unkeyed}.send)
	say("anonymous-receives", func() error { return keyed{n, unkeyed}.receive("without a credential") })
	say("wrong-secret-sends", keyed{n, wrong(sender)}.send)
	// By the other key: its consumer may go on trying, and what is logged of the receiver's key is awaited below.
	say("wrong-secret-receives", func() error { return keyed{n, wrong(sender)}.receive(nobody) })
	if err := untilRevoked(keyed{n, sender}, keyed{n, receiver}); err != nil {
		return nil, err
	}
	say("revoked-sends", keyed{n, sender}.send)
	say("revoked-receives", func() error { return keyed{n, receiver}.receive(nobody) })
	return nil, nil
}

// Both run when "ready" is said, for the runner to remove their keys.
func untilRevoked(sending, receiving keyed) error {
	p, err := sending.producer()
	if err != nil {
		return err
	}
	_, came, err := receiving.consumer()
	if err != nil {
		return err
	}
	send := func() error {
		_, err := p.SendSync(context.Background(), primitive.NewMessage(sending.topic, []byte("hello")))
		return err
	}
	if err = send(); err != nil {
		return err
	}
	if err = refusedOr(came, "signature of access key '"+receiving.keys.AccessKey); err != nil {
		return err
	}
	refused.forget()
	fmt.Println("ready")
	received := make(chan struct{})
	go func() {
		defer close(received)
		say("running-receiver", func() error {
			for {
				if err := refusedOr(came, "signature of access key '"+receiving.keys.AccessKey); err != nil {
					return err
				}
			}
		})
	}()
	say("running-sender", func() error {
		for {
			if err := send(); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	<-received
	return nil
}
