from pegboard.client.http.http_pool import HttpPool as HttpPool
