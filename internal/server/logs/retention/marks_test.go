package retention

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"kici/internal/kit/blob"
)

// counted is an object store that counts how often it is asked for a blob.
type counted struct {
	blob.Store
	asked int
}

func (c *counted) Stat(ctx context.Context, path string) (blob.Info, error) {
	c.asked++
	return c.Store.Stat(ctx, path)
}

// Whoever looks at a step that says nothing asks each time whether its log has expired. The object store is asked now and then.
func TestMarksAreAskedForNowAndThen(t *testing.T) {
	objects, err := blob.OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: objects}
		mine, err := NewMarks(root, store)
		if err != nil {
			t.Fatal(err)
		}
		others, err := NewMarks(root, objects)
		if err != nil {
			t.Fatal(err)
		}
		must := func(want bool, asked int) {
			t.Helper()
			has, err := mine.Has(t.Context(), "r")
			if err != nil || has != want || store.asked != asked {
				t.Errorf("marked: %t, %v, asked %d times; want %t, %d times", has, err, store.asked, want, asked)
			}
		}
		must(false, 1)
		must(false, 1)
		if err := others.Put(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		must(false, 1)
		time.Sleep(unmarkedFor)
		must(true, 2)
		must(true, 3)
		if has, err := mine.Has(t.Context(), "s"); has || err != nil {
			t.Errorf("another run: %t, %v", has, err)
		}
		if err := mine.Put(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if has, err := mine.Has(t.Context(), "s"); !has || err != nil {
			t.Errorf("its own mark: %t, %v", has, err)
		}
	})
}
