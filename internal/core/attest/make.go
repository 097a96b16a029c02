package attest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Claims are those of a token that a statement repeats. A claim that is null is nil.
type Claims struct {
	Issuer       string  `json:"iss"`
	Repository   *string `json:"repository"`
	Ref          *string `json:"ref"`
	SHA          *string `json:"sha"`
	Workflow     *string `json:"workflow_ref"`
	Run          string  `json:"kici_run_id"`
	Job          string  `json:"kici_job_id"`
	Orchestrator *string `json:"orchestrator_id"`
}

// ReadClaims reads the claims of a token without asking who signed it: who makes a bundle has the token from its own
// server, and whoever verifies the bundle checks it. Errors hold nothing of the token.
func ReadClaims(token string) (c Claims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("the server's token is no JWT")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return c, errors.New("the claims of the server's token cannot be read")
	}
	return c, nil
}

// Subject is what a bundle is about.
type Subject struct {
	Name   string
	Digest string // SHA-256, hexadecimal
}

// Make gives a bundle: a statement about the subject, signed with a key that is used this once and forgotten, beside the
// token that says who signed.
func Make(token string, s Subject) ([]byte, error) {
	claims, err := ReadClaims(token)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(statementOf(s, claims))
	if err != nil {
		return nil, fmt.Errorf("make statement: %w", err)
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	public, err := key.PublicJWK()
	if err != nil {
		return nil, fmt.Errorf("make bundle: %w", err)
	}
	signature, err := key.signPayload(PayloadType, payload)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"mediaType": MediaType,
		"dsseEnvelope": map[string]any{"payloadType": PayloadType, "payload": base64.StdEncoding.EncodeToString(payload),
			"signatures": []any{map[string]string{"keyid": key.ID(), "sig": base64.StdEncoding.EncodeToString(signature)}}},
		"verificationMaterial": map[string]any{"publicKey": public, "identityToken": token},
	})
}

func statementOf(s Subject, c Claims) map[string]any {
	internal := map[string]string{"runId": c.Run, "jobId": c.Job}
	if c.SHA != nil {
		internal["commit"] = *c.SHA
	}
	return map[string]any{
		"_type":         StatementType,
		"predicateType": PredicateType,
		"subject":       []any{map[string]any{"name": s.Name, "digest": map[string]string{"sha256": s.Digest}}},
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": BuildType,
				"externalParameters": map[string]any{"workflow": map[string]string{
					"repository": orElse(c.Repository, ""), "ref": orElse(c.Ref, ""), "path": orElse(c.Workflow, "")}},
				"internalParameters": internal,
			},
			"runDetails": map[string]any{
				"builder":  map[string]string{"id": c.Issuer + "/orchestrator/" + orElse(c.Orchestrator, "unknown")},
				"metadata": map[string]string{"invocationId": c.Run},
			},
		},
	}
}

func orElse(s *string, fallback string) string {
	if s == nil {
		return fallback
	}
	return *s
}
