package client

import (
	"os"
	"strconv"
	"testing"
)

// In the place of the client's own setup_test.go, which starts Redis in a container: where the server is, and a token.
var (
	Host      = os.Getenv("LMSTFY_HOST")
	Port      int
	Namespace = os.Getenv("LMSTFY_NAMESPACE")
	Token     = os.Getenv("LMSTFY_TOKEN")
)

func TestMain(m *testing.M) {
	port, err := strconv.Atoi(os.Getenv("LMSTFY_PORT"))
	if err != nil || Host == "" || Token == "" {
		panic("LMSTFY_HOST, LMSTFY_PORT and LMSTFY_TOKEN are needed")
	}
	Port = port
	os.Exit(m.Run())
}
