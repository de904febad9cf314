package client

import (
	"os"
	"strconv"
)

// In the place of the client's own setup_test.go: where the server is, and a token.
var (
	TestHost      = os.Getenv("LMSTFY_HOST")
	TestPort      = port()
	TestNamespace = os.Getenv("LMSTFY_NAMESPACE")
	TestToken     = os.Getenv("LMSTFY_TOKEN")
)

func port() int {
	port, err := strconv.Atoi(os.Getenv("LMSTFY_PORT"))
	if err != nil || TestHost == "" || TestToken == "" || TestNamespace == "" {
		panic("LMSTFY_HOST, LMSTFY_PORT, LMSTFY_NAMESPACE and LMSTFY_TOKEN are needed")
	}
	return port
}
