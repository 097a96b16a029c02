package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"kici/internal/core/adminwire"
)

// Artifacts lists what a run left behind, by name.
func (c *Client) Artifacts(ctx context.Context, runID string) ([]adminwire.Artifact, error) {
	var out adminwire.ArtifactList
	return out.Artifacts, c.call(ctx, "GET", at(runsPath+"/", runID, "/artifacts"), nil, nil, &out)
}

// ArtifactLink gives one artifact of a run with the link to it.
func (c *Client) ArtifactLink(ctx context.Context, runID, name string) (adminwire.ArtifactLink, error) {
	var out adminwire.ArtifactLink
	return out, c.call(ctx, "GET", at(runsPath+"/", runID, "/artifacts/download"), url.Values{"name": {name}}, nil, &out)
}

// Download writes an artifact to w. It takes as long as it takes; what arrives is compared with the size and the hash of
// the artifact, and an error may come after all of it has been written. The link stands in no error: who has it can use
// it.
func (c *Client) Download(ctx context.Context, a adminwire.ArtifactLink, w io.Writer) error {
	link := a.DownloadURL
	if len(link) > 0 && link[0] == '/' {
		link = c.base + link
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, nil)
	if err != nil {
		return errors.New("download: the server gave no usable link")
	}
	resp, err := c.http.Do(req) // without the token: the link may lead elsewhere
	if err != nil {
		return fmt.Errorf("download from %s: %w", req.URL.Host, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("download from %s: HTTP %d", req.URL.Host, resp.StatusCode)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("download from %s: %w", req.URL.Host, err)
	case n != a.SizeBytes:
		return fmt.Errorf("download from %s: %d bytes came, %d were expected", req.URL.Host, n, a.SizeBytes)
	case a.SHA256 != nil && hex.EncodeToString(sum.Sum(nil)) != *a.SHA256:
		return fmt.Errorf("download from %s: the hash mismatches what the job reported", req.URL.Host)
	}
	return nil
}
