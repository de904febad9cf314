// Clients that stay: through restarts of the broker, and many that only wait.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
)

// After the last send, until all is received: a lease that a restart cut short has to end first.
const standingTimeout = 120 * time.Second

var standing = map[string]scenario{"reconnect": reconnect, "reconnect-push": reconnectPush, "idle": idle}

// One message each 100 ms while the broker is killed and started again; what was acknowledged is received.
func reconnect(env *environment) (facts, error) {
	consumer, err := env.simple("", rocketmq.SUB_ALL)
	if err != nil {
		return nil, err
	}
	var lock sync.Mutex
	var bodies []string
	go func() {
		for {
			messages, err := poll(consumer, 10*time.Second)
			if err != nil {
				time.Sleep(200 * time.Millisecond) // the broker is away
			}
			for _, message := range messages {
				lock.Lock()
				bodies = append(bodies, message.text())
				lock.Unlock()
				_ = consumer.Ack(context.Background(), message.MessageView)
			}
		}
	}()
	return sendAndWait(env, func() []string {
		lock.Lock()
		defer lock.Unlock()
		return slices.Clone(bodies)
	})
}

// The same with a PushConsumer.
func reconnectPush(env *environment) (facts, error) {
	to := &listener{}
	if _, err := env.push(to); err != nil {
		return nil, err
	}
	return sendAndWait(env, func() []string { return texts(to.seen()) })
}

func sendAndWait(env *environment, bodies func() []string) (facts, error) {
	wanted := env.number(0, 300)
	producer, err := env.producer("")
	if err != nil {
		return nil, err
	}
	acknowledged := map[string]bool{}
	errors, longest, answered := 0, time.Duration(0), time.Now()
	for attempt := 0; len(acknowledged) < wanted; attempt++ {
		body := fmt.Sprint("reconnect ", attempt)
		if _, err := send(producer, env.message(body)); err == nil {
			longest, answered = max(longest, time.Since(answered)), time.Now()
			acknowledged[body] = true
			if len(acknowledged) == 1 {
				fmt.Fprintln(os.Stderr, "ready")
			}
		} else if errors++; time.Since(answered) > standingTimeout {
			return nil, fmt.Errorf("no send succeeds for %v: %w", standingTimeout, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	deadline := time.Now().Add(standingTimeout)
	for {
		missing := without(acknowledged, bodies())
		if len(missing) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("lost: %d of %d: %.300v", len(missing), wanted, missing)
		}
		time.Sleep(100 * time.Millisecond)
	}
	came := bodies()
	distinct, unacknowledged := map[string]bool{}, 0
	for _, body := range came {
		if !distinct[body] && !acknowledged[body] {
			unacknowledged++
		}
		distinct[body] = true
	}
	return facts{
		"acknowledged": wanted, "send_errors": errors, "outage_ms": longest.Milliseconds(), "received": len(came),
		"duplicates": len(came) - len(distinct), "unacknowledged_received": unacknowledged,
	}, nil
}

func without(all map[string]bool, some []string) []string {
	came := map[string]bool{}
	for _, body := range some {
		came[body] = true
	}
	var missing []string
	for body := range all {
		if !came[body] {
			missing = append(missing, body)
		}
	}
	return missing
}

// Many PushConsumers of one group that only wait; then they still share what comes.
func idle(env *environment) (facts, error) {
	clients, seconds := env.number(0, 20), env.number(1, 10)
	to := &listener{}
	producer, err := env.producer("")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	// All at once: each waits a second for its settings.
	errs := make(chan error, clients)
	for range clients {
		go func() {
			_, err := env.push(to)
			errs <- err
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	connected := time.Since(began)
	fmt.Fprintln(os.Stderr, "ready")
	time.Sleep(time.Duration(seconds) * time.Second)
	if err := same("messages while idle", len(to.seen()), 0); err != nil {
		return nil, err
	}
	var expected []string
	for index := range clients {
		message := env.message(fmt.Sprint("idle ", index))
		expected = append(expected, string(message.Body))
		if _, err := send(producer, message); err != nil {
			return nil, err
		}
	}
	if _, err := to.wait(clients, standingTimeout); err != nil {
		return nil, err
	}
	time.Sleep(quiet)
	return facts{"clients": clients, "connected_s": connected.Seconds(), "idle_s": seconds},
		same("bodies", texts(to.seen()), sorted(expected))
}
