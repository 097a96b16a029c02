package servertest

import (
	"path/filepath"
	"testing"
)

// Second is another home of the same database, with a data folder of its own: what runs in it is another node. Sources,
// repositories and tokens are those of the first.
func (h *Home) Second(t testing.TB) *Home {
	t.Helper()
	if h.Settings.DatabaseURL == "" {
		t.Fatal("two nodes need a PostgreSQL database")
	}
	second := &Home{Settings: h.Settings, DB: h.DB, Repos: h.Repos, Token: h.Token, t: t, sources: h.sources}
	second.Settings.DataDir = filepath.Join(t.TempDir(), "data")
	return second
}

// Move lets the agents of this home connect to the server of another one from now on.
func (h *Home) Move(to *Home) { h.setURL(to.URL()) }
