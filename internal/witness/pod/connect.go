package pod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// minRetry and maxRetry bound the pause before the next request after one that failed.
	minRetry = 500 * time.Millisecond
	maxRetry = 10 * time.Second
)

// API is a connection to the API server of Kubernetes.
type API struct {
	client rest.Interface
	host   string
}

// Connect returns the connection that kubeconfig files describe together, in their present context; they are listed as
// in KUBECONFIG. If they describe none, it is the connection of the pod in which this process runs, by its service
// account. Nothing is sent yet.
func Connect(kubeconfig string) (*API, error) {
	settings, err := loadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	version := groupVersion()
	settings.GroupVersion = &version
	settings.APIPath = "/api"
	settings.NegotiatedSerializer = codecs()
	settings.ContentType = runtime.ContentTypeJSON
	settings.AcceptContentTypes = runtime.ContentTypeJSON
	settings.UserAgent = "unlocker"
	settings.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := rest.RESTClientFor(settings)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	return &API{client, settings.Host}, nil
}

func loadConfig(kubeconfig string) (*rest.Config, error) {
	settings, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(kubeconfig)}, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // the account of a pod cannot be used, either: say why
		settings, err = rest.InClusterConfig()
	}
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, fmt.Errorf("there is no Kubernetes API server to connect to: this process does not run in a pod, "+
			"and the kubeconfig %q does not exist, or is empty", kubeconfig)
	case err != nil:
		return nil, fmt.Errorf("read the settings of the connection to Kubernetes: %w", err)
	}
	return settings, nil
}

// watchPods watches the pods of a namespace, or of all for "", until ctx ends, and stores them in the feed. It calls
// onResponse with the error of every request, nil if it succeeded.
func (a *API) watchPods(ctx context.Context, namespace string, to *feed, onResponse func(error)) {
	get := func(options metav1.ListOptions) *rest.Request {
		return a.client.Get().Namespace(namespace).Resource("pods").VersionedParams(&options, metav1.ParameterCodec)
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := get(o).Do(ctx).Get()
			onResponse(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := get(o).Watch(ctx)
			response := err
			if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
				response = errHungUp // the client hides it
			}
			onResponse(response)
			return w, err
		},
	}
	silent := logr.Discard() // onResponse gets what it would log
	reflector := cache.NewReflectorWithOptions(source, &pod{}, to, cache.ReflectorOptions{
		Logger: &silent, Name: "pods", TypeDescription: "pods",
		Backoff: &wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 1, Steps: 6, Cap: maxRetry},
	})
	reflector.RunWithContext(logr.NewContext(ctx, silent))
}

// get reads the current state of one pod, not from a cache.
func (a *API) get(ctx context.Context, namespace, name string) (*pod, error) {
	var p pod
	err := a.client.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(&p)
	return &p, err
}

// errHungUp means that a connection was closed before its answer.
var errHungUp = errors.New("it closes connections without answering")

// apiProblem is why the API server does not let the witness watch pods.
type apiProblem struct {
	kind string // label of a metric
	text string // a sentence
}

// explain describes an error of the API server; nil if it needs no attention.
func (a *API) explain(err error, namespace string) *apiProblem {
	where := "the pods of all namespaces"
	if namespace != "" {
		where = "the pods of namespace " + namespace
	}
	var network net.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return &apiProblem{"forbidden", "the API server does not let us watch " + where +
			": the role needs get, list and watch for pods"}
	case apierrors.IsUnauthorized(err):
		return &apiProblem{"unauthorized",
			"the API server does not accept our token or certificate: it answers 401 Unauthorized"}
	case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsServerTimeout(err), apierrors.IsTimeout(err):
		return &apiProblem{"overloaded", "the API server cannot answer at present: " + err.Error()}
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return nil // the pods are listed again
	case errors.As(err, &network), errors.Is(err, errHungUp), errors.Is(err, context.DeadlineExceeded):
		return &apiProblem{"unreachable", "the API server " + a.host + " cannot be reached: " + err.Error()}
	}
	return &apiProblem{"other", "the API server does not show " + where + ": " + err.Error()}
}
