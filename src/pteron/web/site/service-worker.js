// Keeps the files of the site, so that it opens without a network. `pteron.js` keeps the program itself.
// The network comes first: a new version of the site is seen at once.

const FILES = [/* files */];
const CACHE = "pteron site";

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()));
});
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

async function answer(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(request, response.clone());
    return response;
  } catch (error) {
    const known = await cache.match(request, { ignoreSearch: true });
    if (known) return known;
    throw error;
  }
}

const known = new Set(FILES.map((file) => new URL(file, self.location.href).href));
self.addEventListener("fetch", (event) => {
  const { url, method } = event.request;
  if (method === "GET" && known.has(url.split(/[?#]/)[0])) event.respondWith(answer(event.request));
});
