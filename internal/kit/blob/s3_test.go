package blob

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"kici/internal/kit/blob/blobtest"
)

// send makes a request without credentials.
func send(t testing.TB, method, link, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, link, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

func TestS3LinksReadAndWriteWithoutCredentials(t *testing.T) {
	s := openTestS3(t, S3Options{Endpoint: blobtest.ObjectStore(t), Prefix: "p"})
	write, err := s.ForAgents().WriteLink(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := send(t, "PUT", write, "content"); status != 200 {
		t.Fatalf("put %d %s", status, answer)
	}
	if got := get(t, s, "a/b"); got != "content" {
		t.Errorf("got %q", got)
	}
	read, err := s.ForAgents().ReadLink(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := send(t, "GET", read, ""); status != 200 || answer != "content" {
		t.Errorf("get %d %q", status, answer)
	}
}

func TestS3LinksNameTheEndpointOfTheirUser(t *testing.T) {
	s := openTestS3(t, S3Options{Endpoint: blobtest.ObjectStore(t), ExternalEndpoint: "https://s3.agents.example", UploadEndpoint: "http://people.example:9000", PathStyle: true})
	tests := []struct {
		links    Links
		host     string
		lifetime map[bool]string // of reading, else of writing, in seconds
	}{
		{s.ForAgents(), "https://s3.agents.example", map[bool]string{true: "900", false: "1800"}},
		{s.ForPeople(), "http://people.example:9000", map[bool]string{true: "900", false: "1800"}},
	}
	for _, tt := range tests {
		read, readErr := tt.links.ReadLink(t.Context(), "x")
		write, writeErr := tt.links.WriteLink(t.Context(), "x")
		for reading, link := range map[bool]string{true: read, false: write} {
			u, err := url.Parse(link)
			if readErr != nil || writeErr != nil || err != nil || !strings.HasPrefix(link, tt.host+"/"+blobtest.Bucket+"/x?") {
				t.Fatalf("%s: %v %v %v", link, readErr, writeErr, err)
			}
			if got := u.Query().Get("X-Amz-Expires"); got != tt.lifetime[reading] {
				t.Errorf("%s ends after %s", link, got)
			}
		}
	}
}

func TestS3PutsThatWereCutOffAreTidiedUp(t *testing.T) {
	s := openTestS3(t, S3Options{Endpoint: blobtest.ObjectStore(t)})
	put(t, s, "kept", "x")
	if _, err := s.core.NewMultipartUpload(t.Context(), blobtest.Bucket, "half", minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	open := func() (n int) {
		for u := range s.core.ListIncompleteUploads(t.Context(), blobtest.Bucket, "", true) {
			if u.Err != nil {
				t.Fatal(u.Err)
			}
			n++
		}
		return n
	}
	for _, step := range []struct {
		before time.Time
		left   int
	}{{time.Now().Add(-time.Hour), 1}, {time.Now().Add(time.Hour), 0}} {
		if err := s.Tidy(t.Context(), step.before); err != nil {
			t.Fatal(err)
		}
		if n := open(); n != step.left {
			t.Errorf("%d uploads are open, want %d", n, step.left)
		}
	}
	if get(t, s, "kept") != "x" {
		t.Error("a blob was lost")
	}
}

func TestOpeningABucketThatIsNotThereNamesIt(t *testing.T) {
	_, err := OpenS3(t.Context(), S3Options{Bucket: "missing", Endpoint: blobtest.ObjectStore(t)})
	if err == nil || !strings.Contains(err.Error(), "bucket missing") {
		t.Errorf("got %v", err)
	}
}

func TestEndpointsAreURLsOfAHost(t *testing.T) {
	for _, good := range []string{"https://s3.example", "http://127.0.0.1:9000/"} {
		if _, err := ParseEndpoint(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "s3.example", "127.0.0.1:9000", "ftp://s3.example", "https://user:pass@s3.example", "https://s3.example/bucket", "https://s3.example?x=1", "http://%zz"} {
		if _, err := ParseEndpoint(bad); err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
