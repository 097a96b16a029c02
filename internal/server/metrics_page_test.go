package server_test

import (
	"os"
	"strings"
	"testing"

	"kici/internal/server/servertest"
)

// What a server shows from the start is on the page.
func TestThePageOfMetricsNamesThem(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	h := servertest.New(t, nil)
	for line := range strings.Lines(metrics(t, h.Start(t).URL())) {
		words := strings.Fields(line)
		if len(words) > 3 && words[1] == "HELP" && strings.HasPrefix(words[2], "kici_") && !strings.Contains(string(page), "| `"+words[2]+"` |") {
			t.Errorf("%s is not on the page", words[2])
		}
	}
}
