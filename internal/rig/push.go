package rig

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// Delivery is a webhook that was accepted.
type Delivery struct {
	ID   string
	Sent time.Time
	Took time.Duration // until the 202
}

// Push is a push to main, as a post-receive hook tells of it.
type Push struct {
	URL  string         // of the server
	Mark string         // by which the same push is known when it is sent again; "" for none
	More map[string]any // further members of the body
}

// Push sends what a post-receive hook sends after a push of the commit to main.
func (r *Rig) Push(ctx context.Context) (Delivery, error) {
	return r.Send(ctx, Push{URL: r.Server.URL})
}

// Send sends a push. One that was accepted before is a success.
func (r *Rig) Send(ctx context.Context, p Push) (Delivery, error) {
	req, err := r.request(ctx, p)
	if err != nil {
		return Delivery{}, err
	}
	d := Delivery{Sent: time.Now()}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return d, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	d.Took = time.Since(d.Sent)
	if err != nil {
		return d, err
	}
	var accepted struct {
		DeliveryID string
		Duplicate  bool
	}
	err = json.Unmarshal(answer, &accepted)
	if accepted.Duplicate && p.Mark != "" { // which is told without the id where its key is still remembered
		accepted.DeliveryID = r.Source.RoutingKey + ":" + p.Mark
	}
	if err != nil || accepted.DeliveryID == "" || resp.StatusCode != http.StatusAccepted && !accepted.Duplicate {
		return d, fmt.Errorf("the webhook was answered %s: %s", resp.Status, answer)
	}
	d.ID = accepted.DeliveryID
	return d, nil
}

func (r *Rig) request(ctx context.Context, p Push) (*http.Request, error) {
	fields := map[string]any{"ref": "refs/heads/main", "after": r.SHA,
		"repository":  map[string]string{"full_name": r.Repo, "default_branch": "main"},
		"head_commit": map[string]string{"message": "Add a workflow"}}
	maps.Copy(fields, p.More)
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, []byte(r.secret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+r.Source.WebhookPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Event-Type", "push")
	req.Header.Set("X-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	if p.Mark != "" {
		req.Header.Set("X-Delivery-Id", p.Mark)
	}
	return req, nil
}

// RunOf reads the newest run when it is the delivery's; ok is false while there is none.
func (r *Rig) RunOf(ctx context.Context, d Delivery) (run adminwire.RunDetail, ok bool, err error) {
	list, err := r.API.Runs(ctx, client.RunQuery{Limit: 1})
	if err != nil || len(list.Runs) == 0 {
		return run, false, err
	}
	run, err = r.API.Run(ctx, list.Runs[0].RunID)
	return run, err == nil && run.DeliveryID != nil && *run.DeliveryID == d.ID, err
}
