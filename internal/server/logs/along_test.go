package logs

import (
	"context"
	"errors"
	"testing"

	"kici/internal/server/store"
)

// along appends a chunk in a transaction that ends as what says.
func along(t testing.TB, h home, s *Store, c Chunk, what error) (stored, called bool) {
	t.Helper()
	stored = s.AppendAlong(t.Context(), c, func(along Along) error {
		called = true
		return h.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return errors.Join(along(ctx, tx), what)
		})
	})
	return stored, called
}

func TestTheFirstChunkIsStoredWithWhatElseThereIs(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		first, second := chunk("a", "1", "2"), chunk("b", "3")
		if stored, _ := along(t, h, s, first, nil); !stored {
			t.Fatal("the first chunk is not stored")
		}
		if row, file := forms(t, h); !row || file {
			t.Errorf("a row: %t, a file: %t", row, file)
		}
		for _, c := range []Chunk{first, second} {
			if stored, called := along(t, h, s, c, nil); stored || called {
				t.Errorf("chunk %s behind the first: stored %t, something is written %t", c.MessageID, stored, called)
			}
		}
		mustAppend(t, s, first, second)
		requireWholeIn(t, s, h, first, second)
		if got := s.Stats(); got.Chunks != 2 || got.Replays != 1 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestOfATransactionThatFailsNoLogIsLeft(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		c := chunk("a", "1")
		if stored, called := along(t, h, s, c, errors.New("no")); stored || !called {
			t.Errorf("stored %t, tried %t", stored, called)
		}
		if row, file := forms(t, h); row || file || len(all(t, s, buildLog)) > 0 {
			t.Errorf("a row: %t, a file: %t, read %q", row, file, all(t, s, buildLog))
		}
		mustAppend(t, s, c)
		requireWholeIn(t, s, h, c)
	})
}

// The transaction may be stored although its maker never heard of that.
func TestALogWhoseAnswerWasLostHasItsLinesOnce(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		c := chunk("a", "1")
		stored := s.AppendAlong(t.Context(), c, func(along Along) error {
			return errors.Join(h.db.Write(t.Context(), along), errors.New("connection reset"))
		})
		if stored {
			t.Error("it is taken for stored")
		}
		mustAppend(t, s, c, chunk("b", "2"))
		requireWholeIn(t, s, h, c, chunk("b", "2"))
	})
}

func TestWhatIsNoFirstChunkOfAShortLogIsLeftToAppend(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		mustAppend(t, h.open(t, Options{}), chunk("a", "1"))
		s := h.open(t, Options{}) // it has not looked at the log yet
		if stored, called := along(t, h, s, chunk("b", "2"), nil); stored || !called {
			t.Errorf("a log that another began: stored %t, tried %t", stored, called)
		}
		mustAppend(t, s, chunk("a", "1"), chunk("b", "2"))
		requireWholeIn(t, s, h, chunk("a", "1"), chunk("b", "2"))
		h = h.anew(t)
		s = h.open(t, Options{})
		for name, c := range map[string]Chunk{"too large": stored("c", shortBytes+1), "empty": chunk("d")} {
			if stored, called := along(t, h, s, c, nil); stored || called {
				t.Errorf("%s: stored %t, something is written %t", name, stored, called)
			}
		}
	})
	s := segmentHome(t).open(t, Options{})
	if s.AppendAlong(t.Context(), chunk("a", "1"), func(Along) error { return nil }) {
		t.Error("a log that is no row is stored in a transaction")
	}
}
