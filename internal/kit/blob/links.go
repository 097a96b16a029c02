package blob

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"kici/internal/kit/service"
)

// Why a link is not accepted. The texts are what its user is told.
var (
	ErrMalformed = errors.New("malformed")
	ErrExpired   = errors.New("expired")
	ErrSignature = errors.New("bad-signature")
)

// LinkRoute is where the blobs of a file store are served, below the server's base URL. The path of the blob follows.
const LinkRoute = "/api/v1/cache/blob/"

// FileLinks makes links to blobs of a store that cannot sign links itself, and checks them when they are used. A link
// carries when it ends and a signature over method, path and end; nothing is remembered of it, so every server with the
// same secret accepts it, also after a restart.
type FileLinks struct {
	base    func() string
	secrets [][]byte
	clock   service.Clock
}

var _ Links = (*FileLinks)(nil)

// NewFileLinks makes links below base, which gives a URL without a slash at the end: a server knows its own only once it
// listens. The first secret signs, and links that any of them signed are accepted.
func NewFileLinks(base func() string, secrets [][]byte, clock service.Clock) *FileLinks {
	return &FileLinks{base: base, secrets: secrets, clock: clock}
}

// Relative is the base of references that whoever follows them completes with the server's base URL as they know it.
func Relative() string { return "" }

// ReadLink implements Links.
func (l *FileLinks) ReadLink(_ context.Context, name string) (string, error) {
	return l.link(http.MethodGet, name, ReadLifetime)
}

// WriteLink implements Links.
func (l *FileLinks) WriteLink(_ context.Context, name string) (string, error) {
	return l.link(http.MethodPut, name, WriteLifetime)
}

func (l *FileLinks) link(method, name string, lifetime time.Duration) (string, error) {
	if err := checkPath(name); err != nil {
		return "", err
	}
	end := strconv.FormatInt(l.clock().Add(lifetime).UnixMilli(), 10)
	signature := hex.EncodeToString(sign(l.secrets[0], method, name, end))
	return l.base() + LinkRoute + (&url.URL{Path: name}).EscapedPath() + "?sig=" + end + "." + signature, nil
}

// Check tells whether a signature lets its holder use a method on a blob, and otherwise which of the reasons above it is.
func (l *FileLinks) Check(method, name, sig string) error {
	end, signature, ok := parseSignature(sig)
	if !ok {
		return ErrMalformed
	}
	if l.clock.Millis() >= end {
		return ErrExpired
	}
	for _, secret := range l.secrets {
		if hmac.Equal(signature, sign(secret, method, name, strconv.FormatInt(end, 10))) {
			return nil
		}
	}
	return ErrSignature
}

// parseSignature reads <end in epoch ms>.<hex>. There is one way to write each signature.
func parseSignature(sig string) (end int64, signature []byte, ok bool) {
	number, digits, _ := strings.Cut(sig, ".")
	end, err := strconv.ParseInt(number, 10, 64)
	if err != nil || end < 0 || strconv.FormatInt(end, 10) != number {
		return 0, nil, false
	}
	signature, err = hex.DecodeString(digits)
	if err != nil || len(signature) != sha256.Size || hex.EncodeToString(signature) != digits {
		return 0, nil, false
	}
	return end, signature, true
}

// sign covers what a link allows. Neither the method nor the end holds a colon, so no two links have one text.
func sign(secret []byte, method, name, end string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(method + ":" + name + ":" + end))
	return mac.Sum(nil)
}
