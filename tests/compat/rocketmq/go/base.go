// What the scenarios share: clients of the official module, and checks that give a reason.
package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	invisibleFor = 30 * time.Second
	timeout      = 30 * time.Second
	// Long polling of a simple consumer: short, so that "nothing comes" is seen soon; the original refuses 2 s.
	await = 3 * time.Second
	// For how long nothing may come where nothing is expected any more.
	quiet = 3 * time.Second
)

type facts map[string]any

// The client's API has no such thing.
type skipped string

func (reason skipped) Error() string { return string(reason) }

func same(what string, found, expected any) error {
	if reflect.DeepEqual(found, expected) {
		return nil
	}
	return fmt.Errorf("%s: %.300v instead of %.300v", what, found, expected)
}

// The first of the errors.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Who refused a call, and the server's status code.
type refusal struct {
	side string
	code int32
}

func refused(what string, err error) (refusal, error) {
	if err == nil {
		return refusal{}, fmt.Errorf("%s was not refused", what)
	}
	var status *rocketmq.ErrRpcStatus
	if errors.As(err, &status) {
		return refusal{"server", status.Code}, nil
	}
	return refusal{"client", 0}, nil
}

func refusedWith(what string, err error, code int32) error {
	found, err := refused(what, err)
	return first(err, same("refusal of "+what, found, refusal{"server", code}))
}

// A message, and the wall clock when the client handed it out.
type received struct {
	*rocketmq.MessageView
	at time.Time
}

func (one received) text() string { return string(one.GetBody()) }

func texts(all []received) []string {
	found := make([]string, 0, len(all))
	for _, one := range all {
		found = append(found, one.text())
	}
	slices.Sort(found)
	return found
}

// Keeps what it was given, and answers what it was told to.
type listener struct {
	lock  sync.Mutex
	all   []received
	done  func(*rocketmq.MessageView) bool
	pause time.Duration
}

func (l *listener) consume(message *rocketmq.MessageView) rocketmq.ConsumerResult {
	l.lock.Lock()
	l.all = append(l.all, received{message, time.Now()})
	l.lock.Unlock()
	time.Sleep(l.pause)
	if l.done == nil || l.done(message) {
		return rocketmq.SUCCESS
	}
	return rocketmq.FAILURE
}

func (l *listener) seen() []received {
	l.lock.Lock()
	defer l.lock.Unlock()
	return slices.Clone(l.all)
}

func (l *listener) wait(count int, limit time.Duration) ([]received, error) {
	deadline := time.Now().Add(limit)
	for {
		if seen := l.seen(); len(seen) >= count {
			return seen, nil
		} else if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d messages after %v", len(seen), count, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// What the command line says, and clients for it; producers and simple consumers are stopped at the end.
type environment struct {
	endpoint, topic, group string
	extra                  []string
	keys                   credentials.SessionCredentials
	open                   []func() error
}

func (env *environment) number(index, other int) int {
	if len(env.extra) > index {
		if number, err := strconv.Atoi(env.extra[index]); err == nil {
			return number
		}
	}
	return other
}

func (env *environment) close() error {
	for _, stop := range env.open {
		if err := stop(); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
	}
	return nil
}

func (env *environment) config(namespace string) *rocketmq.Config {
	return &rocketmq.Config{
		Endpoint:      env.endpoint,
		NameSpace:     namespace,
		ConsumerGroup: env.group,
		Credentials:   &env.keys,
	}
}

// Without topics, Start would wait for ever: this client asks for settings when it learns of a topic.
func (env *environment) producer(namespace string, options ...rocketmq.ProducerOption) (rocketmq.Producer, error) {
	producer, err := rocketmq.NewProducer(env.config(namespace), append(options, rocketmq.WithTopics(env.topic))...)
	if err != nil {
		return nil, err
	}
	if err := producer.Start(); err != nil {
		return nil, err
	}
	env.open = append(env.open, producer.GracefulStop)
	return producer, nil
}

func (env *environment) simple(namespace string, filter *rocketmq.FilterExpression) (rocketmq.SimpleConsumer, error) {
	consumer, err := rocketmq.NewSimpleConsumer(env.config(namespace),
		rocketmq.WithSimpleAwaitDuration(await),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{env.topic: filter}))
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	env.open = append(env.open, consumer.GracefulStop)
	return consumer, nil
}

// A producer, and a simple consumer of everything.
func (env *environment) both() (rocketmq.Producer, rocketmq.SimpleConsumer, error) {
	producer, err := env.producer("")
	if err != nil {
		return nil, nil, err
	}
	consumer, err := env.simple("", rocketmq.SUB_ALL)
	return producer, consumer, err
}

// Not stopped at the end.
func (env *environment) push(to *listener) (rocketmq.PushConsumer, error) {
	consumer, err := rocketmq.NewPushConsumer(env.config(""),
		rocketmq.WithPushSubscriptionExpressions(map[string]*rocketmq.FilterExpression{env.topic: rocketmq.SUB_ALL}),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{Consume: to.consume}))
	if err != nil {
		return nil, err
	}
	return consumer, consumer.Start()
}

func (env *environment) message(body string) *rocketmq.Message {
	return &rocketmq.Message{Topic: env.topic, Body: []byte(body)}
}

func send(producer rocketmq.Producer, message *rocketmq.Message) (*rocketmq.SendReceipt, error) {
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return receipts[0], same("receipts", len(receipts), 1)
}

// One long poll. This client has an error for "no message".
func poll(consumer rocketmq.SimpleConsumer, invisible time.Duration) ([]received, error) {
	messages, err := consumer.Receive(context.Background(), 16, invisible)
	at := time.Now()
	if status, ok := rocketmq.AsErrRpcStatus(err); ok && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return nil, nil
	}
	found := make([]received, 0, len(messages))
	for _, message := range messages {
		found = append(found, received{message, at})
	}
	return found, err
}

// So many messages, in the order in which they came, not acknowledged.
func receive(consumer rocketmq.SimpleConsumer, count int, invisible time.Duration) ([]received, error) {
	deadline := time.Now().Add(timeout)
	var found []received
	for len(found) < count {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d messages after %v", len(found), count, timeout)
		}
		messages, err := poll(consumer, invisible)
		if err != nil {
			return nil, err
		}
		found = append(found, messages...)
	}
	return found, same("messages received", len(found), count)
}

// So many messages, each acknowledged as it comes.
func drain(consumer rocketmq.SimpleConsumer, count int, limit time.Duration) ([]received, error) {
	deadline := time.Now().Add(limit)
	var found []received
	for len(found) < count {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d messages after %v", len(found), count, limit)
		}
		messages, err := poll(consumer, invisibleFor)
		if err != nil {
			return nil, err
		}
		for _, message := range messages {
			found = append(found, message)
			if err := consumer.Ack(context.Background(), message.MessageView); err != nil {
				return nil, fmt.Errorf("ack: %w", err)
			}
		}
	}
	return found, nil
}

// Nothing may come for so long.
func nothing(consumer rocketmq.SimpleConsumer, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		messages, err := poll(consumer, invisibleFor)
		if err != nil {
			return err
		}
		if len(messages) > 0 {
			return fmt.Errorf("something is left: %.300v", texts(messages))
		}
	}
	return nil
}
