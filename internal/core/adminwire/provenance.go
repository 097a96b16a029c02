package adminwire

// Attestation is a provenance bundle that a job left behind, with what is thought of it.
type Attestation struct {
	JobID         string  `json:"jobId"`
	SubjectName   string  `json:"subjectName"`   // chosen by the workflow: any text
	SubjectDigest string  `json:"subjectDigest"` // in hex
	StorageKey    string  `json:"storageKey"`
	MediaType     string  `json:"mediaType"` // as the agent reported it
	SizeBytes     int64   `json:"sizeBytes"`
	VerifyStatus  string  `json:"verifyStatus"` // pending, verified, failed, unverifiable
	VerifyReason  *string `json:"verifyReason"`
	CreatedAt     Time    `json:"createdAt"`
	VerifiedAt    Time    `json:"verifiedAt"` // when it was judged last
}

// AttestationList is the attestations of a run, the oldest first.
type AttestationList struct {
	Attestations []Attestation `json:"attestations"`
}

// AttestationLink is an attestation with a URL to read its bundle by, without a token and for a quarter of an hour. The
// URL may be relative to the server's base URL.
type AttestationLink struct {
	Attestation
	DownloadURL string `json:"downloadUrl"`
}

// Reverify asks for new verdicts.
type Reverify struct {
	All bool `json:"all"` // also on what has been judged
}

// Reverified counts new verdicts.
type Reverified struct {
	Verified     int `json:"verified"`
	Failed       int `json:"failed"`
	Unverifiable int `json:"unverifiable"`
}

// SigningKey is a key that signs identity tokens, or did.
type SigningKey struct {
	ID               string  `json:"kid"` // RFC 7638 thumbprint
	Algorithm        string  `json:"alg"`
	Status           string  `json:"status"` // active, retiring, retired, revoked
	RevocationReason *string `json:"revocationReason"`
	ActivatedAt      Time    `json:"activatedAt"`
	RetiredAt        Time    `json:"retiredAt"` // since it signs no more
	RevokedAt        Time    `json:"revokedAt"`
}

// SigningKeyList is the signing keys, the newest first.
type SigningKeyList struct {
	SigningKeys []SigningKey `json:"signingKeys"`
}

// OneSigningKey is an answer about one.
type OneSigningKey struct {
	SigningKey SigningKey `json:"signingKey"`
}

// RevokeSigningKey asks for a revocation.
type RevokeSigningKey struct {
	Reason string `json:"reason"`
}
