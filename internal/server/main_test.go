package server_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"kici/internal/server/servertest"
)

// manyAtOnce is how many tests of this package run side by side: most wait for times to pass, and for each other's processes.
const manyAtOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.Contains(arg, "test.parallel") }) {
		if err := flag.Set("test.parallel", manyAtOnce); err != nil {
			panic(err)
		}
	}
	servertest.Main(m)
}
