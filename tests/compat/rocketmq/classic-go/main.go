// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with rocketmq-client-go, the classic client in Go, one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const wait = 60 * time.Second

type names struct{ endpoint, topic, group string }

// What a consumer has got, and when.
type inbox struct {
	lock     sync.Mutex
	messages []*primitive.MessageExt
	at       map[string]time.Time
}

func (box *inbox) add(message *primitive.MessageExt) {
	box.lock.Lock()
	defer box.lock.Unlock()
	box.messages = append(box.messages, message)
	box.at[string(message.Body)] = time.Now()
}

func (box *inbox) await(count int) error { return box.awaitFor(count, wait) }

func (box *inbox) awaitFor(count int, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		box.lock.Lock()
		arrived := len(box.messages)
		box.lock.Unlock()
		if arrived >= count {
			return nil
		}
	}
	return fmt.Errorf("%d messages did not come: %d did", count, len(box.messages))
}

func (box *inbox) bodies() string {
	var bodies []string
	for _, message := range box.messages {
		bodies = append(bodies, string(message.Body))
	}
	sort.Strings(bodies)
	return strings.Join(bodies, " ")
}

func (n names) producer() (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{n.endpoint}), producer.WithGroupName(n.group+"-producers"), producer.WithRetry(2))
	if err == nil {
		err = p.Start()
	}
	return p, err
}

// A consumer in an inbox; refuse: whether a message is to come again.
func (n names) collect(topic, group string, selector consumer.MessageSelector, refuse func(*primitive.MessageExt) bool, more ...consumer.Option) (*inbox, error) {
	box := &inbox{at: map[string]time.Time{}}
	options := append([]consumer.Option{
		consumer.WithNameServer([]string{n.endpoint}), consumer.WithGroupName(group), consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithMaxReconsumeTimes(1)}, more...)
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	listen := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			if refuse(message) {
				if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
					concurrent.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
			box.add(message)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = c.Subscribe(topic, selector, listen); err == nil {
		err = c.Start()
	}
	return box, err
}

func never(*primitive.MessageExt) bool { return false }

func send(n names) (map[string]any, error) {
	p, err := n.producer()
	if err != nil {
		return nil, err
	}
	box, err := n.collect(n.topic, n.group, consumer.MessageSelector{}, never)
	if err != nil {
		return nil, err
	}
	full := primitive.NewMessage(n.topic, []byte("sync")).WithTag("tag").WithKeys([]string{"key"})
	full.WithProperty("name", "wert")
	if _, err = p.SendSync(context.Background(), full); err != nil {
		return nil, err
	}
	batch := []*primitive.Message{primitive.NewMessage(n.topic, []byte("batch-1")), primitive.NewMessage(n.topic, []byte("batch-2"))}
	if _, err = p.SendSync(context.Background(), batch...); err != nil {
		return nil, err
	}
	if err = p.SendOneWay(context.Background(), primitive.NewMessage(n.topic, []byte("oneway"))); err != nil {
		return nil, err
	}
	if err = box.await(4); err != nil {
		return nil, err
	}
	if box.bodies() != "batch-1 batch-2 oneway sync" {
		return nil, fmt.Errorf("bodies: %s", box.bodies())
	}
	for _, message := range box.messages {
		if string(message.Body) == "sync" &&
			(message.GetTags() != "tag" || message.GetKeys() != "key" || message.GetProperty("name") != "wert") {
			return nil, fmt.Errorf("properties: %v", message.GetProperties())
		}
	}
	return nil, nil
}

func delay(n names) (map[string]any, error) {
	p, err := n.producer()
	if err != nil {
		return nil, err
	}
	box, err := n.collect(n.topic, n.group, consumer.MessageSelector{}, never)
	if err != nil {
		return nil, err
	}
	due := map[string]time.Time{}
	for level, after := range []time.Duration{0, time.Second, 5 * time.Second} {
		body := fmt.Sprint(level)
		message := primitive.NewMessage(n.topic, []byte(body)).WithDelayTimeLevel(level)
		due[body] = time.Now().Add(after)
		if _, err = p.SendSync(context.Background(), message); err != nil {
			return nil, err
		}
	}
	if err = box.await(3); err != nil {
		return nil, err
	}
	var latest time.Duration
	for body, at := range box.at {
		late := at.Sub(due[body])
		if late < -time.Millisecond {
			return nil, fmt.Errorf("%s came early: %s", body, late)
		}
		latest = max(latest, late)
	}
	return map[string]any{"latest_ms": latest.Milliseconds()}, nil
}

func retry(n names) (map[string]any, error) {
	p, err := n.producer()
	if err != nil {
		return nil, err
	}
	refuse := func(message *primitive.MessageExt) bool {
		return string(message.Body) == "never" || message.ReconsumeTimes == 0
	}
	box, err := n.collect(n.topic, n.group, consumer.MessageSelector{}, refuse)
	if err != nil {
		return nil, err
	}
	dead, err := n.collect("%DLQ%"+n.group, n.group+"-dead", consumer.MessageSelector{}, never)
	if err != nil {
		return nil, err
	}
	for _, body := range []string{"once", "never"} {
		if _, err = p.SendSync(context.Background(), primitive.NewMessage(n.topic, []byte(body))); err != nil {
			return nil, err
		}
	}
	if err = box.await(1); err != nil {
		return nil, err
	}
	if err = dead.await(1); err != nil {
		return nil, err
	}
	if box.bodies() != "once" || dead.bodies() != "never" {
		return nil, fmt.Errorf("handled: %s; dead: %s", box.bodies(), dead.bodies())
	}
	return nil, nil
}

func filter(n names) (map[string]any, error) {
	p, err := n.producer()
	if err != nil {
		return nil, err
	}
	byTag, err := n.collect(n.topic, n.group+"-tag", consumer.MessageSelector{Type: consumer.TAG, Expression: "b || c"}, never)
	if err != nil {
		return nil, err
	}
	bySQL, err := n.collect(n.topic, n.group+"-sql", consumer.MessageSelector{Type: consumer.SQL92, Expression: "TAGS = 'a'"}, never)
	if err != nil {
		return nil, err
	}
	for _, tag := range []string{"a", "b", "c"} {
		if _, err = p.SendSync(context.Background(), primitive.NewMessage(n.topic, []byte(tag)).WithTag(tag)); err != nil {
			return nil, err
		}
	}
	if err = byTag.await(2); err != nil {
		return nil, err
	}
	if err = bySQL.await(1); err != nil {
		return nil, err
	}
	if byTag.bodies() != "b c" || bySQL.bodies() != "a" {
		return nil, fmt.Errorf("by tag: %s; by condition: %s", byTag.bodies(), bySQL.bodies())
	}
	return nil, nil
}

func main() {
	rlog.SetLogLevel("warn")
	scenarios := map[string]func(names) (map[string]any, error){
		"classic-send": send, "classic-delay": delay, "classic-retry": retry, "classic-filter": filter,
		"classic-orderly": orderly, "classic-broadcast": broadcast, "classic-transaction": transaction,
		"classic-lite-pull": pull, "classic-restarts": restarts, "identities": twoKeys,
	}
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: ENDPOINT SCENARIO TOPIC GROUP")
		os.Exit(2)
	}
	facts := map[string]any{}
	if run, isThere := scenarios[os.Args[2]]; isThere {
		more, err := run(names{os.Args[1], os.Args[3], os.Args[4]})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for name, value := range more {
			facts[name] = value
		}
	} else {
		facts["skipped"] = "no program for it in Go"
	}
	facts["client"], facts["scenario"] = "rocketmq-client-go 2.1.2", os.Args[2]
	line, _ := json.Marshal(facts)
	fmt.Println(string(line))
}
