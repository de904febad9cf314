// ENDPOINT SCENARIO TOPIC GROUP [...]: one scenario with the official Go client, one line of JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
)

type scenario func(*environment) (facts, error)

func scenarios() map[string]scenario {
	all := map[string]scenario{}
	for _, some := range []map[string]scenario{plain, delayed, pushed, standing, identities} {
		maps.Copy(all, some)
	}
	return all
}

func main() {
	// What the variable rocketmq.client.enableSsl would say, which no shell can set.
	rocketmq.EnableSsl = false
	os.Exit(run(os.Args[1:]))
}

func run(arguments []string) int {
	all := scenarios()
	if len(arguments) < 4 || all[arguments[1]] == nil {
		names := slices.Sorted(maps.Keys(all))
		fmt.Fprintln(os.Stderr, "usage: ENDPOINT SCENARIO TOPIC GROUP [...]; scenarios:", names)
		return 2
	}
	env := &environment{endpoint: arguments[0], topic: arguments[2], group: arguments[3], extra: arguments[4:]}
	said, err := all[arguments[1]](env)
	if err == nil {
		err = env.close()
	}
	var skip skipped
	if errors.As(err, &skip) {
		said, err = facts{"skipped": skip.Error()}, nil
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", arguments[1], err)
		return 1
	}
	said["client"], said["scenario"] = client(), arguments[1]
	line, err := json.Marshal(said)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(string(line))
	return 0
}

func client() string {
	const module = "github.com/apache/rocketmq-clients/golang/v5"
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, one := range built.Deps {
			if one.Path == module {
				return "rocketmq-clients/golang " + one.Version
			}
		}
	}
	return "rocketmq-clients/golang"
}
