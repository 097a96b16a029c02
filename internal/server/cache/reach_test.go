package cache

import (
	"strings"
	"testing"
)

func TestLinksThatLeadAgentsToThemselvesAreRefused(t *testing.T) {
	for _, good := range []string{"https://kici.example", "http://10.0.0.7:4000/base", "http://[fd00::1]:4000", "http://localhost.example"} {
		if err := CheckReach("KICI_X", good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"http://localhost:4000", "http://LOCALHOST.", "http://a.localhost", "http://127.0.0.1:4000", "http://127.9.9.9", "http://[::1]:4000", "http://0.0.0.0:4000", "http://[::]", "http://[::ffff:127.0.0.1]", "kici.example", ""} {
		if err := CheckReach("KICI_X", bad); err == nil || !strings.HasPrefix(err.Error(), "KICI_X: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
