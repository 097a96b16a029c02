package blob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Options say where a bucket is. An endpoint is a URL such as https://minio.example:9000; only Bucket is needed.
type S3Options struct {
	Bucket           string
	Prefix           string // before every path
	Region           string // "" is us-east-1
	Endpoint         string // "" is Amazon's
	ExternalEndpoint string // as agents reach it; "" is Endpoint
	UploadEndpoint   string // as people's machines reach it; "" is Endpoint
	PathStyle        bool   // the bucket stands in the path, never in the host name
}

// amazon is the endpoint of Amazon's own service. The library finds the one of the region from it.
const amazon = "https://s3.amazonaws.com"

// OpenS3 opens a bucket that exists. Credentials come from the variables, files and roles that Amazon's own tools use.
func OpenS3(ctx context.Context, o S3Options) (*S3, error) {
	keys := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}})
	if o.Region == "" {
		o.Region = "us-east-1" // without one, signing would have to ask an endpoint that perhaps only agents reach
	}
	if o.Endpoint == "" {
		o.Endpoint = amazon
	}
	s := &S3{bucket: o.Bucket, prefix: strings.Trim(o.Prefix, "/")}
	if s.prefix != "" {
		s.prefix += "/"
	}
	var err error
	if s.core.Client, err = s3Client(o, o.Endpoint, keys); err != nil {
		return nil, err
	}
	if s.agents, err = s3Client(o, o.ExternalEndpoint, keys); err != nil {
		return nil, err
	}
	if s.people, err = s3Client(o, o.UploadEndpoint, keys); err != nil {
		return nil, err
	}
	there, err := s.core.BucketExists(ctx, o.Bucket)
	if err == nil && !there {
		err = errors.New("it does not exist")
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s at %s: %w", o.Bucket, o.Endpoint, err)
	}
	return s, nil
}

func s3Client(o S3Options, endpoint string, keys *credentials.Credentials) (*minio.Client, error) {
	if endpoint == "" {
		endpoint = o.Endpoint
	}
	u, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	c, err := minio.New(u.Host, &minio.Options{Creds: keys, Secure: u.Scheme == "https", Region: o.Region, BucketLookup: lookup})
	if err != nil {
		return nil, fmt.Errorf("open object store at %s: %w", endpoint, err)
	}
	return c, nil
}

// ParseEndpoint reads the URL of an object store: http or https, a host, perhaps a port, and nothing more.
func ParseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("endpoint of the object store: a URL such as https://minio.example:9000 is required, without user and path")
	}
	return u, nil
}

// How long a link can be used for. A transfer that has begun may last longer.
const (
	ReadLifetime  = 900 * time.Second
	WriteLifetime = 1800 * time.Second
)

// Links makes links to single blobs. Whoever has a link can use it, so it is a secret until it ends.
type Links interface {
	// ReadLink gives a URL that answers GET with the blob.
	ReadLink(ctx context.Context, path string) (string, error)
	// WriteLink gives a URL that takes the blob by PUT.
	WriteLink(ctx context.Context, path string) (string, error)
}

// s3Links are signed by the object store's own rules.
type s3Links struct {
	s      *S3
	client *minio.Client
}

// ForAgents makes links that agents can reach.
func (s *S3) ForAgents() Links { return s3Links{s, s.agents} }

// ForPeople makes links that the machines of people can reach.
func (s *S3) ForPeople() Links { return s3Links{s, s.people} }

// ReadLink implements Links.
func (l s3Links) ReadLink(ctx context.Context, name string) (string, error) {
	if err := checkPath(name); err != nil {
		return "", err
	}
	u, err := l.client.PresignedGetObject(ctx, l.s.bucket, l.s.prefix+name, ReadLifetime, nil)
	if err != nil {
		return "", fmt.Errorf("sign link to blob %s: %w", name, err)
	}
	return u.String(), nil
}

// WriteLink implements Links.
func (l s3Links) WriteLink(ctx context.Context, name string) (string, error) {
	if err := checkPath(name); err != nil {
		return "", err
	}
	u, err := l.client.PresignedPutObject(ctx, l.s.bucket, l.s.prefix+name, WriteLifetime)
	if err != nil {
		return "", fmt.Errorf("sign link to blob %s: %w", name, err)
	}
	return u.String(), nil
}
