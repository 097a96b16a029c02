package blob

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"kici/internal/kit/service"
)

// linkTime is the time at which test links are made.
const linkTime = 1_767_225_600_000

func testLinks(now *int64, secrets ...string) *FileLinks {
	var keys [][]byte
	for _, s := range secrets {
		keys = append(keys, []byte(s))
	}
	return NewFileLinks(func() string { return "http://h:1/base" }, keys, service.Clock(func() time.Time { return time.UnixMilli(*now) }))
}

// sigOf takes the signature out of a link.
func sigOf(t testing.TB, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("sig")
}

func TestLinksAreSignedOverMethodKeyAndEnd(t *testing.T) {
	now := int64(linkTime)
	link, err := testLinks(&now, "k").WriteLink(t.Context(), "source/a b.tar.gz")
	mac := hmac.New(sha256.New, []byte("k"))
	mac.Write([]byte("PUT:source/a b.tar.gz:1767227400000"))
	want := "http://h:1/base/api/v1/cache/blob/source/a%20b.tar.gz?sig=1767227400000." + hex.EncodeToString(mac.Sum(nil))
	if err != nil || link != want {
		t.Errorf("got %s, %v\nwant %s", link, err, want)
	}
	if _, err := testLinks(&now, "k").ReadLink(t.Context(), "../x"); !errors.Is(err, ErrPath) {
		t.Errorf("bad path: %v", err)
	}
}

func TestLinksAllowOneMethodOnOneBlobForAWhile(t *testing.T) {
	now := int64(linkTime)
	links := testLinks(&now, "k")
	read, _ := links.ReadLink(t.Context(), "a/b")
	write, _ := links.WriteLink(t.Context(), "a/b")
	readSig, writeSig := sigOf(t, read), sigOf(t, write)
	changed := readSig[:len(readSig)-1] + map[bool]string{true: "0", false: "1"}[readSig[len(readSig)-1] != '0']
	later, _ := strings.CutPrefix(readSig, "1767226500000")
	tests := []struct {
		name, method, key, sig string
		at                     int64 // after the link was made
		want                   error
	}{
		{"reading", "GET", "a/b", readSig, 0, nil},
		{"reading at the last moment", "GET", "a/b", readSig, 899_999, nil},
		{"reading too late", "GET", "a/b", readSig, 900_000, ErrExpired},
		{"writing at the last moment", "PUT", "a/b", writeSig, 1_799_999, nil},
		{"writing too late", "PUT", "a/b", writeSig, 1_800_000, ErrExpired},
		{"writing with a link for reading", "PUT", "a/b", readSig, 0, ErrSignature},
		{"reading with a link for writing", "GET", "a/b", writeSig, 0, ErrSignature},
		{"another blob", "GET", "a/c", readSig, 0, ErrSignature},
		{"a changed signature", "GET", "a/b", changed, 0, ErrSignature},
		{"a later end", "GET", "a/b", "1767226500001" + later, 0, ErrSignature},
		{"nothing", "GET", "a/b", "", 0, ErrMalformed},
		{"no number", "GET", "a/b", "x" + later, 0, ErrMalformed},
		{"a number written otherwise", "GET", "a/b", "0" + readSig, 0, ErrMalformed},
		{"a negative number", "GET", "a/b", "-1" + later, 0, ErrMalformed},
		{"half a signature", "GET", "a/b", readSig[:len(readSig)-2], 0, ErrMalformed},
		{"capital digits", "GET", "a/b", strings.ToUpper(readSig), 0, ErrMalformed},
		{"something behind it", "GET", "a/b", readSig + ".x", 0, ErrMalformed},
	}
	for _, tt := range tests {
		now = linkTime + tt.at
		if err := links.Check(tt.method, tt.key, tt.sig); err != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestLinksOutliveARotationOfTheSecret(t *testing.T) {
	now := int64(linkTime)
	link, _ := testLinks(&now, "old").ReadLink(t.Context(), "x")
	if err := testLinks(&now, "new", "old").Check("GET", "x", sigOf(t, link)); err != nil {
		t.Errorf("while the secret is rotated: %v", err)
	}
	if err := testLinks(&now, "new").Check("GET", "x", sigOf(t, link)); err != ErrSignature {
		t.Errorf("after it: %v", err)
	}
}

func FuzzSignature(f *testing.F) {
	now := int64(linkTime)
	links := testLinks(&now, "k")
	link, _ := links.ReadLink(f.Context(), "a/b")
	good := sigOf(f, link)
	for _, seed := range []string{good, "", ".", "1.", "99999999999999999999.ab", good + "00", "1767226500000.zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sig string) {
		if err := links.Check("GET", "a/b", sig); (err == nil) != (sig == good) {
			t.Errorf("%q: %v", sig, err)
		}
	})
}
