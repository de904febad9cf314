// HOST:PORT identities QUEUE NAMESPACE OTHER_QUEUE SENDER TOKEN RECEIVER TOKEN: two tokens of different rights with
// lmstfy's own Go client, what each may do, and what is refused. A line for each, which the runner judges.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bitleak/lmstfy/client"
)

const (
	leaseS = 30
	waitS  = 3
	// For what has to be answered or refused.
	answered = 20 * time.Second
)

func main() {
	if len(os.Args) < 10 {
		fmt.Fprintln(os.Stderr, "usage: HOST:PORT identities QUEUE NAMESPACE OTHER_QUEUE SENDER TOKEN RECEIVER TOKEN")
		os.Exit(2)
	}
	queue, namespace, other := os.Args[3], os.Args[4], os.Args[5]
	as := func(token string) *client.LmstfyClient {
		host, port, _ := net.SplitHostPort(os.Args[1])
		number, _ := strconv.Atoi(port)
		return client.NewLmstfyClient(host, number, namespace, token)
	}
	sender, receiver, wrong := as(os.Args[7]), as(os.Args[9]), as("tarry_wrong")
	say("send", func() error { return send(sender, queue) })
	say("receive", func() error { return receive(receiver, queue) })
	say("receive-by-sender", func() error { return receive(sender, queue) })
	say("send-by-receiver", func() error { return send(receiver, queue) })
	say("send-elsewhere", func() error { return send(sender, other) })
	say("receive-elsewhere", func() error { return receive(receiver, other) })
	nobody := as("")
	say("anonymous-sends", func() error { return send(nobody, other) })
	say("anonymous-sends-elsewhere", func() error { return send(nobody, queue) })
	say("anonymous-receives", func() error { return receive(nobody, queue) })
	say("wrong-secret-sends", func() error { return send(wrong, queue) })
	say("wrong-secret-receives", func() error { return receive(wrong, queue) })
	fmt.Println("ready")
	received := make(chan struct{})
	go func() {
		defer close(received)
		say("running-receiver", func() error {
			for {
				if err := receive(receiver, queue); err != nil && !errors.Is(err, errNothing) {
					return err
				}
			}
		})
	}()
	say("running-sender", func() error {
		for {
			if err := send(sender, queue); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	<-received
	say("revoked-sends", func() error { return send(as(os.Args[7]), queue) })
	say("revoked-receives", func() error { return receive(as(os.Args[9]), queue) })
}

var errNothing = errors.New("nothing came")

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

func send(c *client.LmstfyClient, queue string) error {
	_, err := c.Publish(queue, []byte("hello"), 0, 10, 0)
	return err
}

// One job, acknowledged. The client has nil for "no job".
func receive(c *client.LmstfyClient, queue string) error {
	job, err := c.Consume(queue, leaseS, waitS)
	if err != nil {
		return err
	}
	if job == nil {
		return errNothing
	}
	if failed := c.Ack(queue, job.ID); failed != nil {
		return failed
	}
	return nil
}
