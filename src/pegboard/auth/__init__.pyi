from pegboard.auth.auth import Auth as Auth
