// Package blobtest starts an object store for tests: a real HTTP server that speaks S3's protocol.
package blobtest

import (
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Bucket is the name of the bucket that an object store has.
const Bucket = "bucket"

// ObjectStore starts an object store with an empty bucket for the life of the test, sets credentials for it in the
// environment, and gives its URL.
func ObjectStore(t testing.TB) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(Bucket); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(web.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "access")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return web.URL
}
