package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bitleak/lmstfy/client"
)

const (
	requestTimeout = 60 * time.Second
	ttlSeconds     = 86400
	hexDigits      = 16
)

// report is what a mode prints.
type report map[string]interface{}

var errEnough = errors.New("the warm-up is over")

// bench is what every mode works with. A body is a JSON text, which is all that lmstfy takes in bulk; it begins with the
// job's number and the time it is due, in hexadecimal.
type bench struct {
	options
	queue string
	cli   *client.LmstfyClient
	rest  string
}

func newBench(queue string, o options) (*bench, error) {
	port, err := strconv.Atoi(os.Getenv("LMSTFY_PORT"))
	if err != nil {
		return nil, err
	}
	// As the client's own transport, but for the connections: of those it keeps 32, and would open the others each time.
	transport := &http.Transport{
		MaxIdleConns:        int(o["connections"]),
		MaxIdleConnsPerHost: int(o["connections"]),
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: time.Minute}).DialContext,
	}
	cli := client.NewLmstfyWithClient(&http.Client{Transport: transport, Timeout: requestTimeout},
		os.Getenv("LMSTFY_HOST"), port, os.Getenv("LMSTFY_NAMESPACE"), os.Getenv("LMSTFY_TOKEN"))
	rest := strings.Repeat("x", int(o["body"])-len(`""`)-2*hexDigits)
	return &bench{options: o, queue: queue, cli: cli, rest: rest}, nil
}

func (b *bench) int(name string) int { return int(b.options[name]) }

func (b *bench) numbered(number int, due time.Time) json.RawMessage {
	return json.RawMessage(fmt.Sprintf("\"%016x%016x%s\"", number, due.UnixNano(), b.rest))
}

func numberOf(job *client.Job) int { return int(fromHex(job.Data[1:])) }

func dueOf(job *client.Job) time.Time { return time.Unix(0, fromHex(job.Data[1+hexDigits:])) }

func fromHex(text []byte) int64 {
	value, err := strconv.ParseInt(string(text[:hexDigits]), 16, 64)
	if err != nil {
		panic(err) // the server gave back what it was not given
	}
	return value
}

// each calls work for 0 to count-1, from as many goroutines as there are connections, until one fails.
func (b *bench) each(count int, work func(number int) error) error {
	var next, failed int64
	var first error
	var once sync.Once
	b.together(func() {
		for atomic.LoadInt64(&failed) == 0 {
			number := int(atomic.AddInt64(&next, 1)) - 1
			if number >= count {
				return
			}
			if err := work(number); err != nil {
				atomic.StoreInt64(&failed, 1)
				once.Do(func() { first = err })
			}
		}
	})
	return first
}

// together runs work in as many goroutines as there are connections, and waits for all of them.
func (b *bench) together(work func()) {
	var all sync.WaitGroup
	for i := 0; i < b.int("connections"); i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			work()
		}()
	}
	all.Wait()
}

// measured is how fast the calls of each go and how long they take, after calls that nobody counts.
func (b *bench) measured(count int, work func(number int) error) (report, error) {
	warm := time.Now().Add(time.Duration(b.options["warm_s"] * float64(time.Second)))
	err := b.each(math.MaxInt64, func(int) error {
		if time.Now().After(warm) {
			return errEnough
		}
		return work(0)
	})
	if err != errEnough {
		return nil, err
	}
	spans := make([]float64, count)
	mark("begin")
	begun := time.Now()
	err = b.each(count, func(number int) error {
		start := time.Now()
		err := work(number)
		spans[number] = milliseconds(time.Since(start))
		return err
	})
	seconds := time.Since(begun).Seconds()
	mark("end")
	found := report{"per_s": float64(count) / seconds, "seconds": seconds, "calls": count}
	return withPercentiles(found, "ms", spans), err
}

// mark tells who measures what the server spends meanwhile to look at it now, and not while both ends warm up.
func mark(moment string) { fmt.Println("measured: " + moment) }

func milliseconds(span time.Duration) float64 { return float64(span) / float64(time.Millisecond) }

func withPercentiles(found report, name string, values []float64) report {
	if len(values) == 0 {
		return found
	}
	sort.Float64s(values)
	for text, part := range map[string]float64{"p50": 0.5, "p99": 0.99, "p999": 0.999} {
		found[text+"_"+name] = values[int(part*float64(len(values)-1))]
	}
	found["max_"+name] = values[len(values)-1]
	return found
}
