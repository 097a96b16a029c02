package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/blob/blobtest"
)

func openTestS3(t testing.TB, o S3Options) *S3 {
	t.Helper()
	o.Bucket = blobtest.Bucket
	s, err := OpenS3(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eachStore runs a test on every kind of store.
func eachStore(t *testing.T, test func(t *testing.T, s Store)) {
	t.Run("files", func(t *testing.T) {
		f, _ := openFiles(t)
		test(t, f)
	})
	t.Run("s3", func(t *testing.T) { test(t, openTestS3(t, S3Options{Endpoint: blobtest.ObjectStore(t)})) })
	t.Run("s3 below a prefix", func(t *testing.T) {
		endpoint := blobtest.ObjectStore(t)
		put(t, openTestS3(t, S3Options{Endpoint: endpoint}), "foreign", "of somebody else")
		test(t, openTestS3(t, S3Options{Endpoint: endpoint, Prefix: "kici/blobs/"}))
	})
}

func put(t testing.TB, s Store, path, content string) {
	t.Helper()
	if n, err := s.Put(t.Context(), path, strings.NewReader(content)); err != nil || n != int64(len(content)) {
		t.Fatalf("Put(%s) = %d, %v", path, n, err)
	}
}

func get(t testing.TB, s Store, path string) string {
	t.Helper()
	r, size, err := s.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil || int64(len(data)) != size {
		t.Fatalf("read %d of %d bytes, %v", len(data), size, err)
	}
	return string(data)
}

func TestPutGetDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		put(t, s, "a/b.txt", "first")
		put(t, s, "a/b.txt", "second")
		put(t, s, "empty", "")
		put(t, s, "a..b/..c é", "fine")
		if got := get(t, s, "a/b.txt"); got != "second" {
			t.Errorf("got %q", got)
		}
		if got := get(t, s, "empty"); got != "" {
			t.Errorf("got %q", got)
		}
		for range 2 {
			if err := s.Delete(t.Context(), "a/b.txt"); err != nil {
				t.Error(err)
			}
		}
		for _, path := range []string{"a/b.txt", "a", "a..b", "empty/c"} {
			_, _, err := s.Get(t.Context(), path)
			_, statErr := s.Stat(t.Context(), path)
			moveErr := s.Move(t.Context(), path, "elsewhere")
			for verb, err := range map[string]error{"get": err, "stat": statErr, "move": moveErr} {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%s %s: %v", verb, path, err)
				}
			}
		}
	})
}

func TestStatTellsSizeAndAge(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		begin := time.Now().Add(-2 * time.Second) // object stores keep whole seconds
		put(t, s, "a/b", "12345")
		info, err := s.Stat(t.Context(), "a/b")
		if err != nil || info.Path != "a/b" || info.Size != 5 || info.Modified.Before(begin) || info.Modified.After(time.Now().Add(time.Second)) {
			t.Errorf("got %+v, %v", info, err)
		}
	})
}

func TestFailedPutLeavesWhatWasThere(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		put(t, s, "x", "old")
		broken := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("line cut")))
		if _, err := s.Put(t.Context(), "x", broken); err == nil || !strings.Contains(err.Error(), "line cut") {
			t.Errorf("got %v", err)
		}
		if got := get(t, s, "x"); got != "old" {
			t.Errorf("got %q", got)
		}
		if names, err := s.List(t.Context(), ""); err != nil || len(names) != 1 {
			t.Errorf("%v are left, %v", names, err)
		}
	})
}

func TestPutOfUnknownLengthTakesMoreThanOnePart(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		content := strings.Repeat("0123456789abcdef", (partSize+4096)/16)
		n, err := s.Put(t.Context(), "large", io.MultiReader(strings.NewReader(content)))
		if err != nil || n != int64(len(content)) {
			t.Fatalf("put %d, %v", n, err)
		}
		if get(t, s, "large") != content {
			t.Error("the content differs")
		}
	})
}

func TestListIsSortedAndRecursive(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		for _, path := range []string{"a/b/c", "a.b", "a/b.d", "z"} {
			put(t, s, path, "x")
		}
		for folder, want := range map[string][]string{
			"": {"a.b", "a/b.d", "a/b/c", "z"}, "a": {"a/b.d", "a/b/c"}, "a/b/": {"a/b/c"}, "none": {}, "z": {},
		} {
			got, err := s.List(t.Context(), folder)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("List(%q): %v %s", folder, err, diff)
			}
		}
	})
}

func TestWalkEndsWithTheErrorOfItsVisitor(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		for i := range 5 {
			put(t, s, fmt.Sprint("w/", i), "x")
		}
		enough, visits := errors.New("enough"), 0
		err := s.Walk(t.Context(), "w", func(i Info) error {
			if visits++; visits == 2 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || visits != 2 {
			t.Errorf("%d visits, %v", visits, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Walk(ctx, "w", func(Info) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestMoveReplacesWhatWasThere(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		put(t, s, "from/a é+b", "new")
		put(t, s, "to/deep/b", "old")
		if err := s.Move(t.Context(), "from/a é+b", "to/deep/b"); err != nil {
			t.Fatal(err)
		}
		names, err := s.List(t.Context(), "")
		if diff := cmp.Diff([]string{"to/deep/b"}, names); err != nil || diff != "" || get(t, s, "to/deep/b") != "new" {
			t.Errorf("%v %s", err, diff)
		}
	})
}

func TestManyPutsOfOnePathLeaveOneOfThem(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { put(t, s, "x", strings.Repeat(fmt.Sprint(i), 5000)) })
		}
		wg.Wait()
		if got := get(t, s, "x"); got != strings.Repeat(got[:1], 5000) {
			t.Error("a mixture")
		}
	})
}

func TestBadPathsAreRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		for _, path := range []string{"", ".", "..", "../secret", "/etc/passwd", "a/../../secret", "a//b", "a/", "a/./b", "a\x00b", ".put", ".put/x"} {
			_, _, getErr := s.Get(t.Context(), path)
			_, putErr := s.Put(t.Context(), path, bytes.NewReader(nil))
			_, statErr := s.Stat(t.Context(), path)
			for name, err := range map[string]error{
				"get": getErr, "put": putErr, "stat": statErr, "delete": s.Delete(t.Context(), path),
				"move from": s.Move(t.Context(), path, "b"), "move to": s.Move(t.Context(), "b", path),
			} {
				if !errors.Is(err, ErrPath) {
					t.Errorf("%s %q: %v", name, path, err)
				}
			}
		}
		if err := s.Walk(t.Context(), "../x", func(Info) error { return nil }); !errors.Is(err, ErrPath) {
			t.Errorf("walk: %v", err)
		}
	})
}
