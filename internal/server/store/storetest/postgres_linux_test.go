package storetest

import (
	"net/url"
	"strconv"
	"testing"
)

// TestAPortThatIsTakenCostsNoTests has another server take the port in the moment between, the worst of all that may: it
// answers like the one that was to start, and would take its databases with it when it ends.
func TestAPortThatIsTakenCostsNoTests(t *testing.T) {
	other, err := url.Parse(PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	taken, err := strconv.Atoi(other.Port())
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	p, err := newPrivate(func() (int, error) {
		tries++
		if tries == 1 {
			return taken, nil
		}
		return freePort()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	if data, err := dataDirectory(t.Context(), p.url); err != nil || data != p.data {
		t.Errorf("%s is served from %q, not from %s (%v)", p.url, data, p.data, err)
	}
	if tries < 2 {
		t.Errorf("%d ports were tried", tries)
	}
}
