// Jobs through lmstfy's own Go client: each mode is one measurement of a server and prints, last, one line of JSON; most
// print "measured: begin" and "measured: end" before it, when the calls that count begin and end.
//
//	bench publish QUEUE [count= delay_s=]          single jobs that are due much later
//	bench bulk    QUEUE [count= delay_s= bulk=]    the same, many to a request
//	bench consume QUEUE [count=]                   one by one with an acknowledgement each, of what is there already
//	bench herd    QUEUE [count= batch= ack=]       all due in one instant: when the last one came after it
//	bench paced   QUEUE [rate= seconds=]           at a fixed rate, delays of 1 to 10 s: how late they are
//	bench drain   QUEUE [count= ttr_s=]            as consume, until nothing comes any more, whatever becomes of the server
//
// The server is that of LMSTFY_HOST, LMSTFY_PORT, LMSTFY_TOKEN and LMSTFY_NAMESPACE. Times are of this machine's clock.
// This file is compiled inside lmstfy's module, whose go.mod says which client that is.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

type mode func(*bench) (report, error)

var modes = map[string]mode{
	"publish": publish, "bulk": bulk, "consume": consume, "herd": herd, "paced": paced, "drain": drain,
}

func main() {
	if len(os.Args) < 3 || modes[os.Args[1]] == nil {
		fail(fmt.Errorf("bench MODE QUEUE [name=value ...], and MODE must be publish, bulk, consume, herd, paced or drain"))
	}
	options, err := parse(os.Args[3:])
	if err != nil {
		fail(err)
	}
	b, err := newBench(os.Args[2], options)
	if err != nil {
		fail(err)
	}
	found, err := modes[os.Args[1]](b)
	if err != nil {
		fail(err)
	}
	line, err := json.Marshal(found)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// options are the words "name=value" of the command line, over what stands here.
type options map[string]float64

func parse(words []string) (options, error) {
	found := options{
		"connections": 64, "body": 256, "count": 50000, "delay_s": 3600, "warm_s": 1, "ttr_s": 600,
		"bulk": 64, "batch": 100, "ack": 0, "lead_s": 0, "rate": 2000, "seconds": 20, "patience_s": 10, "tries": 5,
	}
	for _, word := range words {
		parts := strings.SplitN(word, "=", 2)
		if _, known := found[parts[0]]; !known || len(parts) != 2 {
			return nil, fmt.Errorf("%q is no option", word)
		}
		value, err := strconv.ParseFloat(parts[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no number: %w", word, err)
		}
		found[parts[0]] = value
	}
	return found, nil
}
