package store_test

import (
	"fmt"
	"testing"

	"kici/internal/server/store"
)

func TestPlaces(t *testing.T) {
	for range 2 {
		for _, tt := range []struct {
			n, first int
			form     string
			want     string
		}{
			{1, 1, "$%d", "$1"},
			{3, 1, "$%d", "$1,$2,$3"},
			{3, 5, "$%d", "$5,$6,$7"},
			{2, 3, "($%d, 'x', $%d)", "($3, 'x', $4),($5, 'x', $6)"},
		} {
			if got := store.Places(tt.n, tt.first, tt.form); got != tt.want {
				t.Errorf("%d places of %q from %d on: %q", tt.n, tt.form, tt.first, got)
			}
		}
		for n := range 1000 { // more than are remembered
			if got, want := store.Places(1, n, "$%d"), fmt.Sprint("$", n); got != want {
				t.Fatalf("%q, not %q", got, want)
			}
		}
	}
}
